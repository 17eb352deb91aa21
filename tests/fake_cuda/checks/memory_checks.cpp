#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "../memory/memory.h"
#include "expect.h"

/// Each mistake with memory is named; the right program has none.
namespace fake_cuda::checks {
namespace {

constexpr size_t kMib = 1 << 20;

template <typename Type = char>
Type* device_memory(size_t bytes, int device = 0) {
  void* memory = nullptr;
  const cudaError_t error = allocate_device(&memory, bytes, device);
  expect(error == cudaSuccess, std::to_string(bytes) + " bytes can be allocated");
  return static_cast<Type*>(memory);
}

/// The message of the fault that the access raises, or "".
std::string fault_of(const void* memory, size_t bytes) {
  try {
    check_range(memory, bytes, "reads");
  } catch (const DeviceFault& fault) {
    expect(fault.code == cudaErrorIllegalAddress, "the fault's code is cudaErrorIllegalAddress");
    return fault.what();
  }
  return "";
}

/// Whether a child process ends by SIGSEGV when it does this.
bool is_killed(const std::function<void()>& access) {
  const pid_t child = fork();
  if (child == 0) {
    access();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

void check_fresh_memory() {
  auto* numbers = device_memory<float>(1000 * sizeof(float));
  bool all_nan = true;
  for (int i = 0; i < 1000; ++i) {
    all_nan = all_nan && std::isnan(numbers[i]);
  }
  expect(all_nan, "fresh memory is NaN");
  expect(reinterpret_cast<uintptr_t>(numbers) % 256 == 0, "memory is aligned to 256 bytes");
  expect(fault_of(numbers, 1000 * sizeof(float)).empty(), "the whole allocation can be read");
  expect(release_device(numbers) == cudaSuccess, "it can be freed");
}

void check_bounds() {
  char* memory = device_memory(1024);
  expect(has(fault_of(memory + 1020, 8), "beyond its end"), "an access over the end is a fault");
  const std::string behind = fault_of(memory + 1024, 4);
  expect(has(behind, "0 bytes behind 1024 bytes at 0x"), "so is one behind: " + behind);
  expect(has(fault_of(memory - 4, 4), "4 bytes before the first of 1024 bytes"),
         "and one before the first byte");
  expect(has(fault_of(nullptr, 4), "near the null pointer"), "and the null pointer");
  expect(!fault_of(memory, SIZE_MAX - 100).empty(), "and a size that wraps around");
  expect(is_killed([&] { memory[1024] = 1; }), "behind the last byte is a guard page");
  release_device(memory);
}

void check_release() {
  char* memory = device_memory(4000);
  char* other = device_memory(10);
  expect(release_device(memory) == cudaSuccess, "a release");
  release_device(other);
  const std::string text = fault_of(memory + 40, 4);
  expect(has(text, "byte 40 of 4000 bytes") && has(text, "which was freed") &&
             has(text, "1 allocations and releases ago"),
         "a use after free is named: " + text);
  expect(is_killed([&] { memory[0] = 1; }), "freed memory is closed");
  cudaError_t error = cudaSuccess;
  std::string printed = printed_by([&] { error = release_device(memory); });
  expect(error == cudaErrorInvalidValue && has(printed, "which was freed"),
         "a second release is an error, and named: " + printed);
  char* third = device_memory(100);
  printed = printed_by([&] { error = release_device(third + 4); });
  expect(error == cudaErrorInvalidValue && has(printed, "byte 4 of 100 bytes"),
         "a release of the middle is an error");
  printed = printed_by([&] { error = release_host(third); });
  expect(error == cudaErrorInvalidValue, "cudaFreeHost of device memory is an error");
  expect(release_device(third) == cudaSuccess, "the right release still works");
  expect(release_device(nullptr) == cudaSuccess, "a release of null does nothing");
  char* again = device_memory(4000);
  expect(again != memory, "no address is given out twice");
  release_device(again);
}

void check_budget() {
  size_t free = 0;
  size_t total = 0;
  free_bytes_of(0, &free, &total);
  expect(total == 16 * kMib && free == total, "the device has FAKE_CUDA_MIB, all of it free");
  char* memory = device_memory(10 * kMib);
  free_bytes_of(0, &free, &total);
  expect(free == 6 * kMib, "an allocation takes its bytes");
  void* more = memory;
  expect(allocate_device(&more, 7 * kMib, 0) == cudaErrorMemoryAllocation && more == nullptr,
         "more than is free fails");
  char* on_other = device_memory(12 * kMib, 1);
  expect(allocation_of(reinterpret_cast<uintptr_t>(on_other)).device == 1,
         "another device has its own");
  release_device(on_other);
  release_device(memory);
  free_bytes_of(0, &free, &total);
  expect(free == total, "a release gives the bytes back");
}

void check_host_memory() {
  void* memory = nullptr;
  expect(allocate_host(&memory, 100, 0) == cudaSuccess, "page-locked memory");
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory);
  expect(allocation_of(begin + 99).is_host && allocation_of(begin + 100).bytes == 0,
         "it is known as host memory");
  expect(is_in_arena(begin + 100), "behind it is no memory of the program");
  std::vector<char> own(10000);
  const uintptr_t registered = reinterpret_cast<uintptr_t>(own.data());
  expect(!is_in_arena(registered) && allocation_of(registered).bytes == 0, "a vector is not");
  expect(register_host(own.data(), own.size(), 0) == cudaSuccess, "a vector can be registered");
  expect(allocation_of(registered + 9999).is_registered, "then it is known");
  expect(register_host(own.data() + 100, 10, 0) == cudaErrorHostMemoryAlreadyRegistered,
         "but not twice");
  expect(release_host(own.data()) == cudaErrorInvalidValue, "it cannot be freed");
  expect(unregister_host(own.data()) == cudaSuccess, "it can be given back");
  expect(unregister_host(own.data()) == cudaErrorHostMemoryNotRegistered, "once");
  expect(release_host(memory) == cudaSuccess, "page-locked memory can be freed");
  expect(is_killed([&] { *static_cast<char*>(memory) = 1; }), "and is closed then");
}

void check_variables() {
  auto* variable = static_cast<int*>(add_variable(8));
  expect(variable[0] == 0 && variable[1] == 0, "a variable of a kernel is zero");
  expect(allocation_of(reinterpret_cast<uintptr_t>(variable)).bytes == 8, "and found");
  expect(release_device(variable) == cudaErrorInvalidValue, "and cannot be freed");
}

void check_versions() {
  const uint64_t before = memory_version();
  char* memory = device_memory(64);
  const uint64_t between = memory_version();
  release_device(memory);
  expect(before < between && between < memory_version(), "each change has a new version");
  expect(memory_counts().live == 0, "all memory was released");
}

void check_many() {
  std::set<char*> all;
  for (int i = 1; i <= 3000; ++i) {
    void* memory = nullptr;
    if (allocate_device(&memory, static_cast<size_t>(i % 700 + 1), 0) != cudaSuccess) {
      break;
    }
    all.insert(static_cast<char*>(memory));
  }
  expect(all.size() == 3000, "3000 small allocations");
  bool found = true;
  for (char* memory : all) {
    found = found && allocation_of(reinterpret_cast<uintptr_t>(memory)).begin ==
                         reinterpret_cast<uintptr_t>(memory);
    release_device(memory);
  }
  expect(found && memory_counts().live == 0, "each is found and freed");
}

/// In a process of its own, since faults are counted from the first call.
void check_planted_fault() {
  void* memory = nullptr;
  expect(allocate_device(&memory, 64, 0) == cudaSuccess, "allocation 0 works");
  expect(allocate_host(&memory, 64, 0) == cudaSuccess, "allocation 1 works");
  cudaError_t error = cudaSuccess;
  const std::string printed = printed_by([&] { error = allocate_device(&memory, 64, 0); });
  expect(error == cudaErrorMemoryAllocation && has(printed, "FAKE_CUDA_FAIL_MALLOC=2"),
         "allocation 2 fails, as asked");
  expect(allocate_device(&memory, 64, 0) == cudaSuccess, "allocation 3 works");
}

}  // namespace
}  // namespace fake_cuda::checks

int main(int argc, char** argv) {
  using namespace fake_cuda::checks;
  setenv("FAKE_CUDA_MIB", "16", 1);
  if (argc > 1) {
    setenv("FAKE_CUDA_FAIL_MALLOC", "2", 1);
    check_planted_fault();
    return failures == 0 ? 0 : 1;
  }
  check_fresh_memory();
  check_bounds();
  check_release();
  check_budget();
  check_host_memory();
  check_variables();
  check_versions();
  check_many();
  const std::string again = std::string(argv[0]) + " planted";
  expect(std::system(again.c_str()) == 0, "a planted fault, in a process of its own");
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
