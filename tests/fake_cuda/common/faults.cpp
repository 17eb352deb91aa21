#include "faults.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>

namespace fake_cuda {

namespace {

struct Fault {
  const char* variable;
  const char* counter;
  long fails_at = -1;
  std::atomic<long> seen{0};
};

std::array<Fault, 5>& faults() {
  static auto& all = *[] {
    auto* made = new std::array<Fault, 5>{
        {{.variable = "FAKE_CUDA_FORGET_WAIT", .counter = "waits"},
         {.variable = "FAKE_CUDA_FAIL_MALLOC", .counter = "mallocs"},
         {.variable = "FAKE_CUDA_FAIL_LAUNCH", .counter = "launches"},
         {.variable = "FAKE_CUDA_FAIL_SYNC", .counter = "syncs"},
         {.variable = "FAKE_CUDA_FAIL_COLLECTIVE", .counter = "collectives"}}};
    for (Fault& fault : *made) {
      fault.fails_at = setting(fault.variable, -1L);
    }
    return made;
  }();
  return all;
}

struct Counts {
  std::mutex mutex;
  std::map<std::string, long> numbers;
};

Counts& all_counts() {
  static auto& made = *new Counts;
  return made;
}

}  // namespace

bool fails_now(Planted kind) {
  Fault& fault = faults()[static_cast<size_t>(kind)];
  const bool fails = fault.seen++ == fault.fails_at;
  if (fails) {
    std::fprintf(stderr, "fake cuda: planted fault: %s=%ld\n", fault.variable, fault.fails_at);
    count("planted faults");
  }
  return fails;
}

void count(const std::string& what, long more) {
  Counts& all = all_counts();
  std::lock_guard lock(all.mutex);
  all.numbers[what] += more;
}

std::map<std::string, long> counts() {
  std::map<std::string, long> numbers;
  {
    Counts& all = all_counts();
    std::lock_guard lock(all.mutex);
    numbers = all.numbers;
  }
  for (const Fault& fault : faults()) {
    numbers[fault.counter] = fault.seen;
  }
  return numbers;
}

}  // namespace fake_cuda
