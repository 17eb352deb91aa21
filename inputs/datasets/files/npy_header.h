#pragma once

#include <c10/core/ScalarType.h>
#include <lockstep/inputs/datasets/files/mapped_data.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::detail {

/// The header of a .npy file, versions 1.0 to 3.0.
struct NpyHeader {
  at::ScalarType dtype;
  bool fortran_order;
  std::vector<int64_t> shape;
  size_t data_begin;  // bytes before the elements

  /// Throws Error (exit code data) with file and byte offset unless the rest of the file is exactly
  /// the elements of an array.
  static NpyHeader parse(const MappedData& file);
};

}  // namespace lockstep::detail
