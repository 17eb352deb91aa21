#include <cstring>

#include "../common/work.h"
#include "lt_descriptions.h"

/// cublasLt: products that a program describes piece by piece, with epilogues.
namespace fake_cuda {
namespace {

LtProduct* product_of(cublasLtMatmulDesc_t description) {
  return reinterpret_cast<LtProduct*>(description);
}
LtMatrix* matrix_of(cublasLtMatrixLayout_t layout) {
  return reinterpret_cast<LtMatrix*>(layout);
}
LtPreference* preference_of(cublasLtMatmulPreference_t preference) {
  return reinterpret_cast<LtPreference*>(preference);
}

/// Makes a description on the heap; the program sees a pointer of another type.
template <typename Description, typename Opaque, typename... Values>
cublasStatus_t make(const char* function, Opaque* place, Values... values) {
  if (place == nullptr) {
    return refuse(function, "no place for the description");
  }
  *place = reinterpret_cast<Opaque>(new Description{values...});
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Description, typename Attribute>
cublasStatus_t set(const char* function, Description* description, Attribute attribute,
                   const void* from, size_t bytes) {
  return description == nullptr ? refuse(function, "no description")
                                : description->set(attribute, from, bytes);
}

struct LtMatrices {
  cublasLtMatrixLayout_t a;
  cublasLtMatrixLayout_t b;
  cublasLtMatrixLayout_t c;
  cublasLtMatrixLayout_t d;

  bool complete() const { return a != nullptr && b != nullptr && c != nullptr && d != nullptr; }
};

struct LtMemory {
  const void* a;
  const void* b;
  const void* c;
  void* d;
};

/// The product without alpha and beta.
cublasStatus_t describe(const char* function, cublasLtMatmulDesc_t description,
                        const LtMatrices& matrices, const LtMemory& memory, Product* product) {
  if (description == nullptr || !matrices.complete()) {
    return refuse(function, "a description is null");
  }
  const LtProduct& asked = *product_of(description);
  for (const auto layout : {matrices.a, matrices.b, matrices.c, matrices.d}) {
    const LtMatrix& matrix = *matrix_of(layout);
    if (matrix.order != CUBLASLT_ORDER_COL && matrix.order != CUBLASLT_ORDER_ROW) {
      return refuse(function, "orders other than by columns and rows are not known",
                    CUBLAS_STATUS_NOT_SUPPORTED);
    }
    if (matrix.batches != matrix_of(matrices.d)->batches) {
      return refuse(function, "the matrices have different numbers of batches");
    }
  }
  if (asked.pointer_mode != CUBLASLT_POINTER_MODE_HOST &&
      asked.pointer_mode != CUBLASLT_POINTER_MODE_DEVICE) {
    return refuse(function, "alpha as a vector is not known", CUBLAS_STATUS_NOT_SUPPORTED);
  }
  product->name = function;
  product->compute = asked.compute;
  product->operation_a = static_cast<cublasOperation_t>(asked.operation_a);
  product->operation_b = static_cast<cublasOperation_t>(asked.operation_b);
  product->a = matrix_of(matrices.a)->at(memory.a);
  product->b = matrix_of(matrices.b)->at(memory.b);
  product->c = matrix_of(matrices.c)->at(memory.c);
  product->d = matrix_of(matrices.d)->at(memory.d);
  product->batches = matrix_of(matrices.d)->batches;
  return epilogue_of(asked, *matrix_of(matrices.d), &product->epilogue);
}

/// alpha and beta are of the type in which products are summed.
bool scale_type_fits(cudaDataType scale, cudaDataType d) {
  const bool is_wide = d == CUDA_R_64F || d == CUDA_C_32F || d == CUDA_C_64F;
  return scale == (is_wide ? d : CUDA_R_32F);
}

bool is_aligned(const void* memory, uint32_t alignment) {
  return alignment == 0 || reinterpret_cast<uintptr_t>(memory) % alignment == 0;
}

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;  // NOLINT: the rest are cublasLt's own names

extern "C" FAKE_CUDA_EXPORT size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}

extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* place,
                                                                    cublasComputeType_t compute,
                                                                    cudaDataType_t scale) {
  return make<LtProduct>(__func__, place, compute, scale);
}

extern "C" FAKE_CUDA_EXPORT cublasStatus_t
cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete product_of(description);
  return CUBLAS_STATUS_SUCCESS;
}

extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const void* from,
    size_t bytes) {
  return set(__func__, product_of(description), attribute, from, bytes);
}

extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* place,
                                                                      cudaDataType type,
                                                                      uint64_t rows,
                                                                      uint64_t columns,
                                                                      int64_t leading) {
  return make<LtMatrix>(__func__, place, type, CUBLASLT_ORDER_COL, rows, columns, leading);
}

extern "C" FAKE_CUDA_EXPORT cublasStatus_t
cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete matrix_of(layout);
  return CUBLAS_STATUS_SUCCESS;
}

extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void* from,
    size_t bytes) {
  return set(__func__, matrix_of(layout), attribute, from, bytes);
}

extern "C" FAKE_CUDA_EXPORT cublasStatus_t
cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* place) {
  return make<LtPreference>(__func__, place);
}

extern "C" FAKE_CUDA_EXPORT cublasStatus_t
cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference_of(preference);
  return CUBLAS_STATUS_SUCCESS;
}

extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
    const void* from, size_t bytes) {
  return set(__func__, preference_of(preference), attribute, from, bytes);
}

/// One algorithm for what is known, none for the rest.
extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t results[],
    int* found) {
  if (handle == nullptr) {
    return refuse(__func__, "no handle", CUBLAS_STATUS_NOT_INITIALIZED);
  }
  if (preference == nullptr || wanted < 1 || results == nullptr || found == nullptr) {
    return refuse(__func__, "nothing is wanted, or there is no place for it");
  }
  *found = 0;
  // Addresses come later: any that is not null will do here.
  const LtMemory somewhere{found, found, found, found};
  Product product;
  cublasStatus_t status = describe(__func__, description, {a, b, c, d}, somewhere, &product);
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = check_product(product);
  }
  if (status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  const LtPreference& asked = *preference_of(preference);
  const LtAlgorithm algorithm{LtAlgorithm::kMark, asked.alignment_a, asked.alignment_b,
                              asked.alignment_c, 0};
  static_assert(sizeof algorithm <= sizeof results[0].algo.data);
  results[0] = {};
  std::memcpy(results[0].algo.data, &algorithm, sizeof algorithm);
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].wavesCount = 1;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha, const void* a,
    cublasLtMatrixLayout_t layout_a, const void* b, cublasLtMatrixLayout_t layout_b,
    const void* beta, const void* c, cublasLtMatrixLayout_t layout_c, void* d,
    cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
    size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr) {
    return refuse(__func__, "no handle", CUBLAS_STATUS_NOT_INITIALIZED);
  }
  if (alpha == nullptr || beta == nullptr) {
    return refuse(__func__, "alpha or beta is null");
  }
  Product product;
  const cublasStatus_t status = describe(
      __func__, description, {layout_a, layout_b, layout_c, layout_d}, {a, b, c, d}, &product);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  const LtProduct& asked = *product_of(description);
  if (!scale_type_fits(asked.scale_type, product.d.type)) {
    return refuse(__func__, "this type of alpha and beta is not known",
                  CUBLAS_STATUS_NOT_SUPPORTED);
  }
  if (algorithm != nullptr) {
    LtAlgorithm promised;
    std::memcpy(&promised, algorithm->data, sizeof promised);
    if (promised.mark != LtAlgorithm::kMark) {
      return refuse(__func__, "the algorithm comes from nowhere");
    }
    if (!is_aligned(a, promised.alignment_a) || !is_aligned(b, promised.alignment_b) ||
        !is_aligned(c, promised.alignment_c)) {
      return refuse(__func__, "a matrix is less aligned than the preference promised");
    }
  }
  if (workspace_bytes > 0 && reinterpret_cast<uintptr_t>(workspace) % 256 != 0) {
    return refuse(__func__, "the workspace is not aligned to 256 bytes");
  }
  const bool on_device = asked.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
  product.alpha = Scale(alpha, asked.scale_type, on_device);
  product.beta = Scale(beta, asked.scale_type, on_device);
  product.workspace = workspace;
  product.workspace_bytes = workspace_bytes;
  return enqueue_product(stream, product);
}
