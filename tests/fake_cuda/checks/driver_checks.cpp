/// Checks of the driver's functions.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "processes.h"

using namespace fake_cuda::checks;  // NOLINT: a program of checks

namespace {

void texts() {
  const char* text = nullptr;
  expect(cuGetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &text) == CUDA_SUCCESS &&
             std::strcmp(text, "an illegal memory access was encountered") == 0,
         "cuGetErrorString");
  expect(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text) == CUDA_SUCCESS &&
             std::strcmp(text, "CUDA_ERROR_ILLEGAL_ADDRESS") == 0,
         "cuGetErrorName");
  expect(cuGetErrorString(static_cast<CUresult>(12345), &text) == CUDA_ERROR_INVALID_VALUE &&
             text == nullptr,
         "manual: an unknown error has no text");
  expect(std::strcmp(cudaGetErrorName(cudaErrorAssert), "cudaErrorAssert") == 0 &&
             std::strcmp(cudaGetErrorString(cudaErrorAssert), "device-side assert triggered") == 0,
         "cudaGetErrorName and cudaGetErrorString");
  expect(std::strcmp(cudaGetErrorString(static_cast<cudaError_t>(12345)),
                     "unrecognized error code") == 0,
         "an unknown error of the runtime");
}

void contexts() {
  unsigned flags = 0;
  int active = -1;
  int count = -1;
  expect(cuInit(0) == CUDA_SUCCESS && cuDeviceGetCount(&count) == CUDA_SUCCESS && count == 2,
         "cuInit and cuDeviceGetCount");
  cuDevicePrimaryCtxGetState(1, &flags, &active);
  expect(active == 0, "a device begins without a context");
  CUcontext context = nullptr;
  expect(cuCtxGetCurrent(&context) == CUDA_SUCCESS && context == nullptr, "no current context");
  cudaSetDevice(1);
  cuDevicePrimaryCtxGetState(1, &flags, &active);
  expect(active == 1, "cudaSetDevice made it");
  cuDevicePrimaryCtxGetState(0, &flags, &active);
  expect(active == 0, "and no other");
  cuCtxGetCurrent(&context);
  CUcontext retained = nullptr;
  cuDevicePrimaryCtxRetain(&retained, 1);
  expect(context != nullptr && context == retained, "it is the current one");
  CUdevice device = -1;
  expect(cuDeviceGet(&device, 2) == CUDA_ERROR_INVALID_DEVICE, "no third device");
}

void broken_driver() {
  int count = -1;
  const CUresult error = cuInit(0);
  const char* text = nullptr;
  cuGetErrorString(error, &text);
  std::printf("%d %s\n", static_cast<int>(error), text);
  cuDeviceGetCount(&count);
}

const Cases kCases = {{"texts", texts}, {"contexts", contexts}, {"broken_driver", broken_driver}};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    return run_named(kCases, argv[1]);
  }
  check_case("texts");
  check_case("contexts", "FAKE_CUDA_DEVICES=2");
  expect(has(run_case("broken_driver", "FAKE_CUDA_INIT=100").output,
             "100 no CUDA-capable device is detected"),
         "FAKE_CUDA_INIT is what cuInit answers");
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
