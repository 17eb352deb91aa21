#pragma once

#include <string>
#include <vector>

#include "../common/work.h"

/// The devices of this process, the current one of each thread, and who made which context.
namespace fake_cuda {

/// FAKE_CUDA_DEVICES (1).
FAKE_CUDA_EXPORT int number_of_devices();
bool is_device(int device);
FAKE_CUDA_EXPORT int current_device();
void set_current_device(int device);

/// What cuInit answers (FAKE_CUDA_INIT): success, or why there is no CUDA.
FAKE_CUDA_EXPORT cudaError_t initialize();

/// Context of a device: on a real one it costs hundreds of megabytes, so a rank that makes one on
/// the device of another rank has a fault that no result shows.
struct Context {
  int device = 0;
  long thread = 0;  // gettid()
  bool is_main_thread = false;
  std::string call;  // which needed it
};
FAKE_CUDA_EXPORT void make_context(int device, const char* call);
FAKE_CUDA_EXPORT bool has_context(int device);
std::vector<Context> contexts();

}  // namespace fake_cuda
