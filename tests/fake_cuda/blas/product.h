#pragma once

#include <cublas_api.h>

#include <cstdint>
#include <string>

#include "epilogue.h"
#include "numbers.h"

namespace fake_cuda {

/// A matrix in the device's memory; `stride` leads from one of a batch to the next.
struct Matrix {
  void* memory = nullptr;
  cudaDataType type = CUDA_R_32F;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t leading = 0;
  int64_t stride = 0;
  bool row_major = false;
};

/// alpha or beta: known at the call, or read from the device when the product runs.
class Scale {
 public:
  Scale() = default;
  Scale(const void* scalar, cudaDataType type, bool on_device);

  /// Call inside of Work.
  Complex<double> value() const;
  /// Whether it is known to be zero at the call.
  bool is_zero() const;

 private:
  const void* on_device_ = nullptr;
  cudaDataType type_ = CUDA_R_32F;
  Complex<double> value_;
};

/// d = epilogue(alpha * op(a) * op(b) + beta * c), for each matrix of a batch.
struct Product {
  std::string name;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasOperation_t operation_a = CUBLAS_OP_N;
  cublasOperation_t operation_b = CUBLAS_OP_N;
  Matrix a;
  Matrix b;
  Matrix c;
  Matrix d;
  Scale alpha;
  Scale beta;
  int64_t batches = 1;
  Epilogue epilogue;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
};

/// Says on stderr what is wrong; CUBLAS_STATUS_SUCCESS if nothing is.
cublasStatus_t check_product(const Product& product);

/// Checks and enqueues. The math modes (TF32) are ignored: fp32 is multiplied as fp32. Sums of
/// 16-bit numbers are fp32 and rounded once.
cublasStatus_t enqueue_product(cudaStream_t stream, const Product& product);

/// The status of an enqueued piece of work.
cublasStatus_t status_of(cudaError_t error);

/// Says why a call is refused, and returns `status`.
cublasStatus_t refuse(const std::string& function, const std::string& why,
                      cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE);

}  // namespace fake_cuda
