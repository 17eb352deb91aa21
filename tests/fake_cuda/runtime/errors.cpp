#include "errors.h"

#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "../common/faults.h"
#include "contexts.h"
#include "error_table.h"

namespace fake_cuda {

namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local bool in_host_function = false;
std::atomic<int> sticky{cudaSuccess};
std::atomic<bool> forked{false};

/// A child has the parent's memory but not its device: CUDA does not work in it.
void watch_forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forked = true; });
  static_cast<void>(registered);
}

const ErrorName* find(int error) {
  for (const ErrorName& known : kErrorNames) {
    if (known.code == error) {
      return &known;
    }
  }
  return nullptr;
}

}  // namespace

cudaError_t fail(cudaError_t error) {
  if (error != cudaSuccess) {
    last_error = error;
  }
  return error;
}

cudaError_t refuse(cudaError_t error, const std::string& why) {
  std::fprintf(stderr, "fake cuda: refused: %s\n", why.c_str());
  return fail(error);
}

cudaError_t sticky_error() {
  return static_cast<cudaError_t>(sticky.load());
}

void set_sticky_error(cudaError_t error) {
  int none = cudaSuccess;
  sticky.compare_exchange_strong(none, error);
}

cudaError_t answer() {
  return fail(sticky_error());
}

cudaError_t answer_of_wait() {
  if (fails_now(Planted::kFailedSync)) {
    set_sticky_error(cudaErrorLaunchFailure);
  }
  return answer();
}

cudaError_t enter(const char* call) {
  if (forked) {
    return fail(cudaErrorInitializationError);
  }
  if (in_host_function) {
    return refuse(cudaErrorNotPermitted, std::string(call) + " in a host function of a stream");
  }
  if (const cudaError_t error = initialize(); error != cudaSuccess) {
    return fail(error);
  }
  watch_forks();
  make_context(current_device(), call);
  return answer();
}

const char* driver_error_name(int error) {
  const ErrorName* known = find(error);
  return known == nullptr || *known->driver_name == '\0' ? nullptr : known->driver_name;
}

const char* error_text(int error) {
  const ErrorName* known = find(error);
  return known == nullptr ? nullptr : known->text;
}

HostFunctionScope::HostFunctionScope() {
  in_host_function = true;
}
HostFunctionScope::~HostFunctionScope() {
  in_host_function = false;
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

FAKE_CUDA_EXPORT cudaError_t cudaGetLastError() {
  const cudaError_t error = sticky_error() != cudaSuccess ? sticky_error() : last_error;
  last_error = cudaSuccess;
  return error;
}

FAKE_CUDA_EXPORT cudaError_t cudaPeekAtLastError() {
  return sticky_error() != cudaSuccess ? sticky_error() : last_error;
}

FAKE_CUDA_EXPORT const char* cudaGetErrorName(cudaError_t error) {
  const ErrorName* known = find(error);
  return known == nullptr ? "unrecognized error code" : known->runtime_name;
}

FAKE_CUDA_EXPORT const char* cudaGetErrorString(cudaError_t error) {
  const ErrorName* known = find(error);
  return known == nullptr ? "unrecognized error code" : known->text;
}

}  // extern "C"
