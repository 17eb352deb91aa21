#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>

namespace lockstep {

/// An array that NumPy saved (.npy), mapped into memory: only the samples that are read come from
/// the disk.
///
///   lockstep::NpyArray images("images.npy");   // sample i is images[i]
///
/// Types: bool, int8 to int64, uint8 to uint64, float16 to float64, complex64, complex128;
/// little-endian; C or Fortran order. Arrays of bool are read as a whole. LibTorch computes little
/// with uint16 to uint64: cast them. Can be used as a dataset for Loader. The file must not change
/// while it is open. Ranks: local. Threads: several threads may call get at the same time. Throws
/// Error (exit code data) that names file, byte offset and what was expected: missing or empty
/// file, bad magic number, unknown version, malformed header, another type, truncated data,
/// trailing bytes, an array without dimensions.
class NpyArray {
 public:
  explicit NpyArray(const std::string& path);

  /// The first dimension.
  size_t size() const { return static_cast<size_t>(array_.size(0)); }
  /// A copy of sample `index`, without the first dimension.
  at::Tensor get(size_t index) const;
  /// The whole array. It shares the mapped memory, and stays valid after this object is destroyed;
  /// writes to it never reach the file, but change what get() returns.
  const at::Tensor& tensor() const { return array_; }

 private:
  at::Tensor array_;
};

}  // namespace lockstep
