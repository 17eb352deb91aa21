#pragma once

#include <lockstep/checkpointing/snapshot/stored_type.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::snapshot {

/// One tensor of a safetensors file: row-major, little-endian.
struct StoredTensor {
  std::string name;
  const StoredType* type = nullptr;
  std::vector<int64_t> sizes;
  uint64_t begin = 0;  // of its bytes, counted from the end of the header
  uint64_t end = 0;
};

/// The header of a safetensors file: 8 bytes of length, then JSON.
///
/// Limits: 100,000,000 bytes of JSON, 200,000 tensors, 8 dimensions, names of 4096 bytes.
struct SafetensorsHeader {
  static constexpr uint64_t kMaxBytes = 100'000'000;
  static constexpr size_t kMaxTensors = 200'000;
  static constexpr size_t kMaxDimensions = 8;

  std::vector<StoredTensor> tensors;  // in the order of their bytes, which leave no hole
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // bytes of the file before the first tensor: a multiple of 8 if we
                            // wrote it, anything if others did

  /// Throws Error (exit code snapshot) with file and byte unless `file_text`, the whole file, has
  /// a header that accounts for each of its bytes exactly once.
  static SafetensorsHeader parse(std::string_view file_text, const std::string& file);

  /// Places the tensors (largest element first, then by name), sets begin, end and data_begin, and
  /// returns the bytes before the data. Throws Error for a duplicate or unusable name.
  std::string lay_out();

  /// Bytes of the whole file.
  uint64_t file_bytes() const { return data_begin + (tensors.empty() ? 0 : tensors.back().end); }
};

}  // namespace lockstep::snapshot
