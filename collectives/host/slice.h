#pragma once

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

/// Flat memory of one dtype.
struct Span {
  char* data = nullptr;
  int64_t numel = 0;
  c10::ScalarType dtype = c10::ScalarType::Byte;

  int64_t element_size() const { return static_cast<int64_t>(c10::elementSize(dtype)); }
  size_t bytes() const { return static_cast<size_t>(numel * element_size()); }
  char* at(int64_t element) const { return data + element * element_size(); }
};

/// The elements [begin, end).
struct Slice {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

/// Part `part` of `n` elements cut into `parts` nearly equal runs that begin on cache lines.
inline Slice slice_of(int64_t n, int part, int parts, int64_t element_size) {
  const int64_t line = std::max<int64_t>(1, 64 / element_size);
  const int64_t lines = (n + line - 1) / line;
  return {std::min(n, lines * part / parts * line), std::min(n, lines * (part + 1) / parts * line)};
}

/// Elements [begin, end) of chunk `chunk` out of n.
inline Slice chunk_of(int64_t n, int64_t chunk, int64_t chunk_elements) {
  return {std::min(n, chunk * chunk_elements), std::min(n, (chunk + 1) * chunk_elements)};
}

inline int64_t chunk_count(int64_t n, int64_t chunk_elements) {
  return std::max<int64_t>(1, (n + chunk_elements - 1) / chunk_elements);
}

}  // namespace lockstep::detail
