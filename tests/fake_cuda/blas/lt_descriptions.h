#pragma once

#include <cublasLt.h>

#include <cstdint>

#include "epilogue.h"
#include "product.h"

/// What a program tells cublasLt: a product, its matrices and its preferences. Attributes that are
/// not known are refused.
namespace fake_cuda {

struct LtProduct {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType scale_type = CUDA_R_32F;
  int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  int32_t operation_a = CUBLAS_OP_N;
  int32_t operation_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  int64_t bias_stride = 0;
  int32_t bias_type = -1;  // of d
  void* auxiliary = nullptr;
  int64_t auxiliary_leading = 0;
  int64_t auxiliary_stride = 0;
  int32_t auxiliary_type = -1;  // of d
  int32_t processors = 0;       // kept, not used

  cublasStatus_t set(cublasLtMatmulDescAttributes_t attribute, const void* from, size_t bytes);
};

struct LtMatrix {
  cudaDataType type = CUDA_R_32F;
  int32_t order = CUBLASLT_ORDER_COL;
  uint64_t rows = 0;
  uint64_t columns = 0;
  int64_t leading = 0;
  int32_t batches = 1;
  int64_t stride = 0;

  cublasStatus_t set(cublasLtMatrixLayoutAttribute_t attribute, const void* from, size_t bytes);
  Matrix at(const void* memory) const;
};

struct LtPreference {
  uint64_t workspace_bytes = 0;
  uint32_t alignment_a = 256;
  uint32_t alignment_b = 256;
  uint32_t alignment_c = 256;
  uint32_t alignment_d = 256;

  cublasStatus_t set(cublasLtMatmulPreferenceAttributes_t attribute, const void* from,
                     size_t bytes);
};

/// The only algorithm, as cublasLtMatmulAlgo_t holds it: what the program promised when it asked.
struct LtAlgorithm {
  static constexpr uint64_t kMark = 0x66616b655f6c74;

  uint64_t mark = kMark;
  uint32_t alignment_a = 256;
  uint32_t alignment_b = 256;
  uint32_t alignment_c = 256;
  uint32_t unused = 0;
};

/// Refuses what is not known; then `epilogue` is what it asks for.
cublasStatus_t epilogue_of(const LtProduct& product, const LtMatrix& d, Epilogue* epilogue);

}  // namespace fake_cuda
