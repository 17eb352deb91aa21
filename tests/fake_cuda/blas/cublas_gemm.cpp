#include <algorithm>

#include "../common/work.h"
#include "handle.h"

/// cuBLAS's products of matrices: each entry point becomes a Product.
namespace fake_cuda {
namespace {

struct Sizes {
  int64_t m;
  int64_t n;
  int64_t k;
};

/// A matrix of a call before its shape is known.
struct Given {
  const void* memory;
  cudaDataType type;
  int64_t leading;
  int64_t stride = 0;
};

Matrix matrix(const Given& given, int64_t rows, int64_t columns) {
  return Matrix{const_cast<void*>(given.memory),
                given.type,
                rows,
                columns,
                given.leading,
                given.stride,
                false};
}

cublasStatus_t gemm(const char* name, cublasHandle_t handle, cublasComputeType_t compute,
                    cublasOperation_t operation_a, cublasOperation_t operation_b, Sizes sizes,
                    const void* alpha, Given a, Given b, const void* beta, Given c,
                    int64_t batches = 1) {
  const cublasStatus_t status = check_handle(name, handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (alpha == nullptr || beta == nullptr) {
    return refuse(name, "alpha or beta is null");
  }
  const bool is_double = c.type == CUDA_R_64F || c.type == CUDA_C_64F;
  const bool is_complex_type = c.type == CUDA_C_32F || c.type == CUDA_C_64F;
  const cudaDataType scale = is_complex_type ? c.type : is_double ? CUDA_R_64F : CUDA_R_32F;
  const bool a_lies = operation_a == CUBLAS_OP_N;
  const bool b_lies = operation_b == CUBLAS_OP_N;
  Product product;
  product.name = name;
  product.compute = compute;
  product.operation_a = operation_a;
  product.operation_b = operation_b;
  product.a = matrix(a, a_lies ? sizes.m : sizes.k, a_lies ? sizes.k : sizes.m);
  product.b = matrix(b, b_lies ? sizes.k : sizes.n, b_lies ? sizes.n : sizes.k);
  product.c = matrix(c, sizes.m, sizes.n);
  product.d = product.c;
  product.alpha = scale_of(handle, alpha, scale);
  product.beta = scale_of(handle, beta, scale);
  product.batches = batches;
  return enqueue_on_handle(handle, product);
}

/// y = alpha * op(a) * x + beta * y: a product with a matrix of one column, whose elements lie
/// `step_x` and `step_y` apart.
cublasStatus_t gemv(const char* name, cublasHandle_t handle, cublasComputeType_t compute,
                    cublasOperation_t operation, int64_t m, int64_t n, const void* alpha, Given a,
                    const void* x, int64_t step_x, const void* beta, void* y, int64_t step_y) {
  const cublasStatus_t status = check_handle(name, handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (alpha == nullptr || beta == nullptr) {
    return refuse(name, "alpha or beta is null");
  }
  if (step_x == 0 || step_y == 0) {
    return refuse(name, "the step of a vector is 0");
  }
  if (step_x < 0 || step_y < 0) {
    return refuse(name, "vectors that lie backwards are not known", CUBLAS_STATUS_NOT_SUPPORTED);
  }
  const int64_t length = operation == CUBLAS_OP_N ? m : n;
  const int64_t k = operation == CUBLAS_OP_N ? n : m;
  Product product;
  product.name = name;
  product.compute = compute;
  product.operation_a = operation;
  product.a = matrix(a, m, n);
  // One element in each row.
  product.b = Matrix{const_cast<void*>(x), a.type, k, 1, step_x, 0, true};
  product.c = Matrix{y, a.type, length, 1, step_y, 0, true};
  product.d = product.c;
  product.alpha = scale_of(handle, alpha, a.type);
  product.beta = scale_of(handle, beta, a.type);
  return enqueue_on_handle(handle, product);
}

}  // namespace
}  // namespace fake_cuda

/// The entry points of one type.
#define FAKE_CUDA_PRODUCTS(letter, Number, type, compute)                                         \
  extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublas##letter##gemm_v2(                             \
      cublasHandle_t handle, cublasOperation_t operation_a, cublasOperation_t operation_b, int m, \
      int n, int k, const Number* alpha, const Number* a, int lda, const Number* b, int ldb,      \
      const Number* beta, Number* c, int ldc) {                                                   \
    return fake_cuda::gemm(__func__, handle, compute, operation_a, operation_b, {m, n, k}, alpha, \
                           {a, type, lda}, {b, type, ldb}, beta, {c, type, ldc});                 \
  }                                                                                               \
  extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublas##letter##gemmStridedBatched(                  \
      cublasHandle_t handle, cublasOperation_t operation_a, cublasOperation_t operation_b, int m, \
      int n, int k, const Number* alpha, const Number* a, int lda, long long stride_a,            \
      const Number* b, int ldb, long long stride_b, const Number* beta, Number* c, int ldc,       \
      long long stride_c, int batches) {                                                          \
    return fake_cuda::gemm(__func__, handle, compute, operation_a, operation_b, {m, n, k}, alpha, \
                           {a, type, lda, stride_a}, {b, type, ldb, stride_b}, beta,              \
                           {c, type, ldc, stride_c}, batches);                                    \
  }                                                                                               \
  extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublas##letter##gemv_v2(                             \
      cublasHandle_t handle, cublasOperation_t operation, int m, int n, const Number* alpha,      \
      const Number* a, int lda, const Number* x, int step_x, const Number* beta, Number* y,       \
      int step_y) {                                                                               \
    return fake_cuda::gemv(__func__, handle, compute, operation, m, n, alpha, {a, type, lda}, x,  \
                           step_x, beta, y, step_y);                                              \
  }

FAKE_CUDA_PRODUCTS(S, float, CUDA_R_32F, CUBLAS_COMPUTE_32F)
FAKE_CUDA_PRODUCTS(D, double, CUDA_R_64F, CUBLAS_COMPUTE_64F)
FAKE_CUDA_PRODUCTS(C, cuComplex, CUDA_C_32F, CUBLAS_COMPUTE_32F)
FAKE_CUDA_PRODUCTS(Z, cuDoubleComplex, CUDA_C_64F, CUBLAS_COMPUTE_64F)

#undef FAKE_CUDA_PRODUCTS

extern "C" FAKE_CUDA_EXPORT cublasStatus_t
cublasGemmEx(cublasHandle_t handle, cublasOperation_t operation_a, cublasOperation_t operation_b,
             int m, int n, int k, const void* alpha, const void* a, cudaDataType type_a, int lda,
             const void* b, cudaDataType type_b, int ldb, const void* beta, void* c,
             cudaDataType type_c, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t) {
  return fake_cuda::gemm(__func__, handle, compute, operation_a, operation_b, {m, n, k}, alpha,
                         {a, type_a, lda}, {b, type_b, ldb}, beta, {c, type_c, ldc});
}

extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t operation_a, cublasOperation_t operation_b, int m,
    int n, int k, const void* alpha, const void* a, cudaDataType type_a, int lda,
    long long stride_a, const void* b, cudaDataType type_b, int ldb, long long stride_b,
    const void* beta, void* c, cudaDataType type_c, int ldc, long long stride_c, int batches,
    cublasComputeType_t compute, cublasGemmAlgo_t) {
  return fake_cuda::gemm(__func__, handle, compute, operation_a, operation_b, {m, n, k}, alpha,
                         {a, type_a, lda, stride_a}, {b, type_b, ldb, stride_b}, beta,
                         {c, type_c, ldc, stride_c}, batches);
}

/// Sums in fp32, whatever the types of the matrices.
extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasSgemmEx(
    cublasHandle_t handle, cublasOperation_t operation_a, cublasOperation_t operation_b, int m,
    int n, int k, const float* alpha, const void* a, cudaDataType type_a, int lda, const void* b,
    cudaDataType type_b, int ldb, const float* beta, void* c, cudaDataType type_c, int ldc) {
  return fake_cuda::gemm(__func__, handle, CUBLAS_COMPUTE_32F, operation_a, operation_b, {m, n, k},
                         alpha, {a, type_a, lda}, {b, type_b, ldb}, beta, {c, type_c, ldc});
}
