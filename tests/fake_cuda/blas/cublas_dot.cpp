#include <cstring>
#include <vector>

#include "../common/work.h"
#include "handle.h"
#include "sums_of_products.h"

/// cuBLAS's scalar products. Their sums ascend.
namespace fake_cuda {
namespace {

struct Vector {
  const void* memory;
  int64_t step;
};

void read_vector(const Vector& vector, int64_t count, size_t element) {
  if (vector.step == 1) {
    read_bytes(vector.memory, count * element);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    read_bytes(static_cast<const char*>(vector.memory) + i * vector.step * element, element);
  }
}

template <typename Sum>
Sum dot(const Vector& x, const Vector& y, cudaDataType type, int64_t count, bool conjugated) {
  Sum sum{};
  with_elements(x.memory, type, [&](const auto* from) {
    using Element = std::remove_cvref_t<decltype(*from)>;
    if constexpr (is_summed_in<Element, Sum>) {
      const auto* other = static_cast<const Element*>(y.memory);
      for (int64_t i = 0; i < count; ++i) {
        const auto left = static_cast<Sum>(from[i * x.step]);
        sum = multiply_add(conjugated ? conjugate(left) : left, static_cast<Sum>(other[i * y.step]),
                           sum);
      }
    }
  });
  return sum;
}

template <typename Sum>
void store_dot(const Vector& x, const Vector& y, cudaDataType type, int64_t count, bool conjugated,
               void* result) {
  const auto sum = dot<Sum>(x, y, type, count, conjugated);
  if constexpr (is_complex<Sum>) {
    std::memcpy(result, &sum, sizeof sum);
  } else {
    store_real(result, type, 0, sum);
  }
}

cublasStatus_t enqueue_dot(const char* name, cublasHandle_t handle, int64_t count, Vector x,
                           Vector y, cudaDataType type, bool conjugated, void* result) {
  cublasStatus_t status = check_handle(name, handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (result == nullptr || count < 0) {
    return refuse(name, "no place for the result, or a negative count");
  }
  if (x.step <= 0 || y.step <= 0) {
    return refuse(name, "vectors that lie backwards or have no step are not known",
                  CUBLAS_STATUS_NOT_SUPPORTED);
  }
  const bool on_device = handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE;
  status = status_of(enqueue(handle->stream, name, [=] {
    const size_t element = bytes_of(type);
    read_vector(x, count, element);
    read_vector(y, count, element);
    if (on_device) {
      write_bytes(result, element);
    }
    switch (type) {
      case CUDA_R_64F:
        store_dot<double>(x, y, type, count, conjugated, result);
        break;
      case CUDA_C_32F:
        store_dot<Complex<float>>(x, y, type, count, conjugated, result);
        break;
      case CUDA_C_64F:
        store_dot<Complex<double>>(x, y, type, count, conjugated, result);
        break;
      default:
        store_dot<float>(x, y, type, count, conjugated, result);
    }
    return true;
  }));
  // As in cuBLAS: the call waits for a result on the host.
  if (status == CUBLAS_STATUS_SUCCESS && !on_device) {
    status = status_of(cudaStreamSynchronize(handle->stream));
  }
  return status;
}

}  // namespace
}  // namespace fake_cuda

#define FAKE_CUDA_DOT(function, Number, type, conjugated)                                         \
  extern "C" FAKE_CUDA_EXPORT cublasStatus_t function(                                            \
      cublasHandle_t handle, int count, const Number* x, int step_x, const Number* y, int step_y, \
      Number* result) {                                                                           \
    return fake_cuda::enqueue_dot(__func__, handle, count, {x, step_x}, {y, step_y}, type,        \
                                  conjugated, result);                                            \
  }

FAKE_CUDA_DOT(cublasSdot_v2, float, CUDA_R_32F, false)
FAKE_CUDA_DOT(cublasDdot_v2, double, CUDA_R_64F, false)
FAKE_CUDA_DOT(cublasCdotu_v2, cuComplex, CUDA_C_32F, false)
FAKE_CUDA_DOT(cublasCdotc_v2, cuComplex, CUDA_C_32F, true)
FAKE_CUDA_DOT(cublasZdotu_v2, cuDoubleComplex, CUDA_C_64F, false)
FAKE_CUDA_DOT(cublasZdotc_v2, cuDoubleComplex, CUDA_C_64F, true)

#undef FAKE_CUDA_DOT

extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasDotEx(cublasHandle_t handle, int count,
                                                       const void* x, cudaDataType type_x,
                                                       int step_x, const void* y,
                                                       cudaDataType type_y, int step_y,
                                                       void* result, cudaDataType type_result,
                                                       cudaDataType execution) {
  const bool is_half_wide = type_x == CUDA_R_16F || type_x == CUDA_R_16BF;
  if (!is_half_wide || type_y != type_x || type_result != type_x || execution != CUDA_R_32F) {
    return fake_cuda::refuse(__func__, "only fp16 and bf16, summed in fp32, are known",
                             CUBLAS_STATUS_NOT_SUPPORTED);
  }
  return fake_cuda::enqueue_dot(__func__, handle, count, {x, step_x}, {y, step_y}, type_x, false,
                                result);
}
