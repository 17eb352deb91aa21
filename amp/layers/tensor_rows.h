#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/amp/impl/cast_kernels.h>

#include <vector>

namespace lockstep::amp {

/// The rows (last dimension) of a contiguous fp32, fp16 or bf16 tensor on the CPU, as fp32.
class TensorRows {
 public:
  explicit TensorRows(const at::Tensor& tensor)
      : data_(static_cast<char*>(tensor.mutable_data_ptr())),
        dtype_(tensor.scalar_type()),
        size_(tensor.size(-1)),
        rows_(size_ == 0 ? 0 : tensor.numel() / size_),
        row_bytes_(size_ * static_cast<int64_t>(tensor.element_size())) {}

  int64_t rows() const { return rows_; }
  int64_t size() const { return size_; }

  /// The row itself if it is fp32; else a copy of it in `scratch`.
  const float* read(int64_t row, std::vector<float>& scratch) const {
    if (dtype_ == at::kFloat) {
      return reinterpret_cast<const float*>(at(row));
    }
    scratch.resize(static_cast<size_t>(size_));
    kernels::cast_scaled(scratch.data(), at::kFloat, at(row), dtype_, size_, 1.0);
    return scratch.data();
  }
  /// Where to write the row; store() then copies it to the tensor.
  float* target(int64_t row, std::vector<float>& scratch) const {
    if (dtype_ == at::kFloat) {
      return reinterpret_cast<float*>(at(row));
    }
    scratch.resize(static_cast<size_t>(size_));
    return scratch.data();
  }
  void store(int64_t row, const float* values) const {
    if (dtype_ != at::kFloat) {
      kernels::cast_scaled(at(row), dtype_, values, at::kFloat, size_, 1.0);
    }
  }

 private:
  char* at(int64_t row) const { return data_ + row * row_bytes_; }

  char* data_;
  at::ScalarType dtype_;
  int64_t size_;
  int64_t rows_;
  int64_t row_bytes_;
};

}  // namespace lockstep::amp
