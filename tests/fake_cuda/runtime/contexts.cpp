#include "contexts.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>

#include "errors.h"

namespace fake_cuda {

namespace {

constexpr int kMostDevices = 64;

thread_local int current = 0;

struct Ledger {
  std::mutex mutex;
  std::array<std::atomic<bool>, kMostDevices> made{};
  std::vector<Context> contexts;
};

Ledger& ledger() {
  static auto& made = *new Ledger;
  return made;
}

}  // namespace

int number_of_devices() {
  static const long number = setting("FAKE_CUDA_DEVICES", 1L);
  return static_cast<int>(number < 0 ? 0 : number > kMostDevices ? kMostDevices : number);
}

bool is_device(int device) {
  return device >= 0 && device < number_of_devices();
}

int current_device() {
  return current;
}

void set_current_device(int device) {
  current = device;
}

cudaError_t initialize() {
  static const auto error = static_cast<cudaError_t>(setting("FAKE_CUDA_INIT", 0L));
  if (error != cudaSuccess) {
    return error;
  }
  return number_of_devices() == 0 ? cudaErrorNoDevice : cudaSuccess;
}

void make_context(int device, const char* call) {
  Ledger& all = ledger();
  if (all.made[device]) {
    return;
  }
  std::lock_guard lock(all.mutex);
  if (all.made[device]) {
    return;
  }
  const long thread = gettid();
  all.contexts.push_back({device, thread, thread == getpid(), call});
  all.made[device] = true;
  if (setting("FAKE_CUDA_LOG", 0L) != 0) {
    std::fprintf(stderr, "fake cuda: context of device %d made by thread %ld in %s\n", device,
                 thread, call);
  }
}

bool has_context(int device) {
  return is_device(device) && ledger().made[device];
}

std::vector<Context> contexts() {
  Ledger& all = ledger();
  std::lock_guard lock(all.mutex);
  return all.contexts;
}

}  // namespace fake_cuda
