#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/stored_type.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::snapshot {

/// The header entry of one tensor of a safetensors file. The bytes of a tensor are row-major and
/// little-endian.
struct StoredTensor {
  std::string name;
  const StoredType* type = nullptr;
  std::vector<int64_t> sizes;
  uint64_t begin = 0;  // byte offset of its data, from the end of the header
  uint64_t end = 0;
};

/// The header of a safetensors file: its length in 8 bytes, then JSON.
///
/// Limits: 100,000,000 bytes of JSON, 200,000 tensors, 8 dimensions, names of 4096 bytes.
struct SafetensorsHeader {
  static constexpr uint64_t kMaxBytes = 100'000'000;
  static constexpr size_t kMaxTensors = 200'000;
  static constexpr size_t kMaxDimensions = 8;

  std::vector<StoredTensor> tensors;  // in the order of their bytes, without gaps
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // bytes of the file before the first tensor: a multiple of 8 in files
                            // of lockstep, any number in files of other programs

  /// Parses the header of `file_text`, the whole file. Throws Error (exit code snapshot) with the
  /// file and the byte offset unless the header assigns every byte of the data to exactly one
  /// tensor.
  static SafetensorsHeader parse(std::string_view file_text, const std::string& file);

  /// Why a tensor in a file cannot have this name or number of dimensions, as the rest of a
  /// sentence about the tensor; empty if it can.
  static std::string why_unusable(const std::string& name, size_t dimensions);

  /// Assigns an offset to each tensor (largest element type first, then by name): sets begin, end
  /// and data_begin. Returns the bytes before the data. Throws Error for a duplicate or unusable
  /// name.
  std::string lay_out();

  /// The size of the whole file in bytes.
  uint64_t file_bytes() const { return data_begin + (tensors.empty() ? 0 : tensors.back().end); }
};

}  // namespace lockstep::snapshot
