#pragma once

#include <c10/core/ScalarType.h>

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

}  // namespace lockstep::detail
