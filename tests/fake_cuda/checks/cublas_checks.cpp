/// Checks of the fake cuBLAS through its own calls: what LibTorch does not reach by itself.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "expect.h"

using namespace fake_cuda::checks;  // NOLINT: a program of checks

namespace {

/// Floats on the device.
class Floats {
 public:
  explicit Floats(const std::vector<float>& values) : size_(values.size()) {
    cudaMalloc(reinterpret_cast<void**>(&memory_), size_ * sizeof(float));
    cudaMemcpy(memory_, values.data(), size_ * sizeof(float), cudaMemcpyHostToDevice);
    cudaDeviceSynchronize();
  }
  ~Floats() { cudaFree(memory_); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  float* data() { return memory_; }
  std::vector<float> values() const {
    std::vector<float> values(size_);
    cudaDeviceSynchronize();
    cudaMemcpy(values.data(), memory_, size_ * sizeof(float), cudaMemcpyDeviceToHost);
    return values;
  }

 private:
  float* memory_ = nullptr;
  size_t size_;
};

constexpr float kOne = 1;
constexpr float kZero = 0;

cublasStatus_t square(cublasHandle_t handle, const float* alpha, Floats& a, const float* beta,
                      Floats& c) {
  return cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, alpha, a.data(), 2, a.data(), 2,
                     beta, c.data(), 2);
}

void handles() {
  cublasHandle_t handle = nullptr;
  expect(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "a handle is made");
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH);
  cublasGetMathMode(handle, &math);
  expect(math == CUBLAS_TF32_TENSOR_OP_MATH, "the math mode is kept");
  Floats a({1, 2, 3, 4});
  Floats c({9, 9, 9, 9});
  cublasDestroy(handle);
  const std::string said = printed_by([&] {
    expect(square(handle, &kOne, a, &kZero, c) == CUBLAS_STATUS_NOT_INITIALIZED,
           "a handle that was destroyed is refused");
  });
  expect(has(said, "cublasSgemm_v2: there is no such handle"), "... by name");
}

void wrong_arguments() {
  cublasHandle_t handle = nullptr;
  cublasCreate(&handle);
  Floats a({1, 2, 3, 4});
  Floats c({9, 9, 9, 9});
  const auto gemm = [&](int m, int n, int k, int lda, int ldc, const float* alpha) {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    printed_by([&] {
      status = cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, alpha, a.data(), lda,
                           a.data(), 2, &kZero, c.data(), ldc);
    });
    return status;
  };
  expect(gemm(2, 2, 2, 2, 2, &kOne) == CUBLAS_STATUS_SUCCESS, "a product is taken");
  expect(gemm(-1, 2, 2, 2, 2, &kOne) == CUBLAS_STATUS_INVALID_VALUE, "a negative size");
  expect(gemm(2, 2, 2, 1, 2, &kOne) == CUBLAS_STATUS_INVALID_VALUE, "a small leading dimension");
  expect(gemm(2, 2, 2, 2, 1, &kOne) == CUBLAS_STATUS_INVALID_VALUE, "... of c");
  expect(gemm(2, 2, 2, 2, 2, nullptr) == CUBLAS_STATUS_INVALID_VALUE, "no alpha");
  expect(gemm(0, 2, 2, 2, 2, &kOne) == CUBLAS_STATUS_SUCCESS, "an empty product");
  cublasDestroy(handle);
}

void scales_on_the_device() {
  cublasHandle_t handle = nullptr;
  cublasCreate(&handle);
  cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE);
  Floats a({1, 2, 3, 4});
  Floats c({1, 1, 1, 1});
  Floats scales({2, 3});
  Floats dot({0});
  square(handle, scales.data(), a, scales.data() + 1, c);
  expect(c.values() == std::vector<float>({17, 23, 33, 47}), "alpha and beta on the device");
  cublasSdot(handle, 4, a.data(), 1, a.data(), 1, dot.data());
  expect(dot.values()[0] == 30, "a scalar product to the device");
  cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST);
  float on_host = 0;
  cublasSdot(handle, 2, a.data(), 2, a.data(), 1, &on_host);
  expect(on_host == 7, "... and to the host, with steps");
  cublasDestroy(handle);
}

void order_of_sums() {
  cublasHandle_t handle = nullptr;
  cublasCreate(&handle);
  Floats a({1e8F, 1, -1e8F, 1});
  Floats ones({1, 1, 1, 1});
  Floats c({0});
  cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 4, &kOne, a.data(), 1, ones.data(), 4, &kZero,
              c.data(), 1);
  expect(c.values()[0] == 1, "sums ascend: ((1e8 + 1) - 1e8) + 1 is 1");
  cublasDestroy(handle);
}

void streams_and_workspaces() {
  cublasHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  cublasCreate(&handle);
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  Floats a({1, 2, 3, 4});
  Floats c({0, 0, 0, 0});
  Floats workspace(std::vector<float>(64, 0));
  expect(cublasSetWorkspace(handle, workspace.data(), 256) == CUBLAS_STATUS_SUCCESS, "a workspace");
  cublasSetStream(handle, stream);
  square(handle, &kOne, a, &kZero, c);
  expect(workspace.values()[0] == 0, "a new stream takes the workspace away");
  cublasSetWorkspace(handle, workspace.data(), 256);
  float alpha = 10;
  square(handle, &alpha, a, &kZero, c);
  alpha = 0;  // it was read at the call
  expect(std::isnan(workspace.values()[63]), "a product overwrites its workspace");
  expect(c.values() == std::vector<float>({70, 100, 150, 220}), "alpha is read at the call");
  cublasDestroy(handle);
  cudaStreamDestroy(stream);
}

/// A product of cublasLt: d = epilogue(a * b), a 3 x 2, b 2 x 2.
class LtCall {
 public:
  LtCall() {
    cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&a_, CUDA_R_32F, 3, 2, 3);
    cublasLtMatrixLayoutCreate(&b_, CUDA_R_32F, 2, 2, 2);
    cublasLtMatrixLayoutCreate(&d_, CUDA_R_32F, 3, 2, 3);
  }
  ~LtCall() {
    cublasLtMatmulDescDestroy(product_);
    for (const auto layout : {a_, b_, d_}) {
      cublasLtMatrixLayoutDestroy(layout);
    }
  }
  LtCall(const LtCall&) = delete;
  LtCall& operator=(const LtCall&) = delete;

  template <typename Value>
  cublasStatus_t set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    return cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof value);
  }
  cublasStatus_t run(const float* a, const float* b, float* d,
                     const cublasLtMatmulAlgo_t* algorithm = nullptr) {
    return cublasLtMatmul(reinterpret_cast<cublasLtHandle_t>(this), product_, &kOne, a, a_, b, b_,
                          &kZero, d, d_, d, d_, algorithm, nullptr, 0, nullptr);
  }
  cublasStatus_t ask(cublasLtMatmulHeuristicResult_t* result, int* found) {
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulPreferenceCreate(&preference);
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(reinterpret_cast<cublasLtHandle_t>(this), product_, a_, b_,
                                       d_, d_, preference, 1, result, found);
    cublasLtMatmulPreferenceDestroy(preference);
    return status;
  }

 private:
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr;
  cublasLtMatrixLayout_t b_ = nullptr;
  cublasLtMatrixLayout_t d_ = nullptr;
};

void epilogues() {
  Floats a({1, -2, 3, -4, 5, -6});
  Floats b({1, 0, 0, 1});  // the identity: the product is a
  Floats d(std::vector<float>(6, 0));
  Floats bias({10, 0, -10});
  Floats input(std::vector<float>(6, 0));
  Floats mask(std::vector<float>(8, 0));  // 128 bits for each column
  LtCall call;
  call.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.data());
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU_AUX_BIAS);
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, mask.data());
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{128});
  expect(call.run(a.data(), b.data(), d.data()) == CUBLAS_STATUS_SUCCESS, "relu, bias and mask");
  expect(d.values() == std::vector<float>({11, 0, 0, 6, 5, 0}), "... its values");
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DRELU_BGRAD);
  call.run(a.data(), b.data(), d.data());
  expect(d.values() == std::vector<float>({1, 0, 0, -4, 5, 0}), "the gradient of relu by the mask");
  expect(bias.values() == std::vector<float>({-3, 5, 0}), "the gradient of the bias");
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX);
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, input.data());
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{3});
  call.run(a.data(), b.data(), d.data());
  expect(input.values() == a.values(), "gelu keeps its input");
  expect(std::abs(d.values()[0] - 0.841192F) < 1e-6F, "gelu of 1");
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DGELU);
  call.run(a.data(), b.data(), d.data());
  expect(std::abs(d.values()[0] - 1.0829641F) < 1e-6F, "the gradient of gelu at 1");
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BGRADA);
  call.run(a.data(), b.data(), d.data());
  expect(bias.values() == std::vector<float>({-3, 3, -3}), "the sums of a's rows");
  call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BGRADB);
  call.run(a.data(), b.data(), d.data());
  expect(bias.values() == std::vector<float>({1, 1, -3}), "the sums of b's columns");
}

void what_cublas_lt_refuses() {
  Floats a(std::vector<float>(7, 1));
  Floats b(std::vector<float>(4, 1));
  Floats d(std::vector<float>(6, 0));
  cublasLtMatmulHeuristicResult_t result;
  int found = 0;
  LtCall call;
  expect(call.ask(&result, &found) == CUBLAS_STATUS_SUCCESS && found == 1, "one algorithm");
  expect(call.run(a.data(), b.data(), d.data(), &result.algo) == CUBLAS_STATUS_SUCCESS, "it runs");
  printed_by([&] {
    expect(call.run(a.data() + 1, b.data(), d.data(), &result.algo) == CUBLAS_STATUS_INVALID_VALUE,
           "an operand that is less aligned than promised");
    cublasLtMatmulAlgo_t other;
    std::memset(&other, 0, sizeof other);
    expect(call.run(a.data(), b.data(), d.data(), &other) == CUBLAS_STATUS_INVALID_VALUE,
           "an algorithm from nowhere");
    expect(call.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1}) == CUBLAS_STATUS_NOT_SUPPORTED,
           "an attribute that is not known");
    expect(call.set(CUBLASLT_MATMUL_DESC_TRANSA, int8_t{1}) == CUBLAS_STATUS_INVALID_VALUE,
           "an attribute of another size");
    call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    expect(call.ask(&result, &found) == CUBLAS_STATUS_INVALID_VALUE && found == 0,
           "a bias without an address");
    call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
    call.set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{CUBLAS_OP_T});
    expect(call.ask(&result, &found) == CUBLAS_STATUS_INVALID_VALUE, "shapes that do not fit");
  });
}

void wrong_address() {
  cublasHandle_t handle = nullptr;
  cublasCreate(&handle);
  Floats a({1, 2, 3, 4});
  Floats c({0, 0, 0, 0});
  cudaError_t error = cudaSuccess;
  const std::string said = printed_by([&] {
    cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 20, &kOne, a.data(), 2, a.data(), 20,
                &kZero, c.data(), 2);
    error = cudaDeviceSynchronize();
  });
  expect(error == cudaErrorIllegalAddress, "an operand beyond its allocation");
  expect(has(said, "cublasSgemm_v2"), "... is reported with the call's name");
}

}  // namespace

int main() {
  for (const auto& check : {handles, wrong_arguments, scales_on_the_device, order_of_sums,
                            streams_and_workspaces, epilogues, what_cublas_lt_refuses}) {
    check();
  }
  wrong_address();  // the last one: the error stays
  return failures == 0 ? 0 : 1;
}
