#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/impl/blocked_signals.h>
#include <lockstep/runtime/process/impl/host_threads.h>
#include <malloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

namespace lockstep::detail {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// A character per core: '1' where this process may run.
std::string own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::string cores(CPU_SETSIZE, '0');
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      cores[static_cast<size_t>(core)] = CPU_ISSET(core, &set) ? '1' : '0';
    }
  }
  return cores;
}

}  // namespace

int threads_of_environment() {
  const char* asked = std::getenv("OMP_NUM_THREADS");
  return asked != nullptr ? std::max(0, std::atoi(asked)) : 0;
}

int threads_of_this_rank(Communicator& control) {
  const std::string host = host_name();
  std::string cores_of_node(CPU_SETSIZE, '0');
  for (const std::string& rank : control.all_gather_bytes(own_cores() + host)) {
    if (rank.substr(CPU_SETSIZE) == host) {
      std::transform(rank.begin(), rank.begin() + CPU_SETSIZE, cores_of_node.begin(),
                     cores_of_node.begin(), [](char a, char b) { return std::max(a, b); });
    }
  }
  const int from_environment = threads_of_environment();
  const auto cores = std::count(cores_of_node.begin(), cores_of_node.end(), '1');
  return from_environment > 0
             ? from_environment
             : std::max(1, static_cast<int>(cores) / std::max(1, control.local_size()));
}

void start_compute_threads(int threads) {
  at::set_num_threads(threads);
  const BlockedSignals blocked;
  at::zeros({threads * at::internal::GRAIN_SIZE}).add_(1);  // large enough for all of them
}

void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

void release_freed_memory(c10::Device device) {
  malloc_trim(0);
  if (!device.is_cpu()) {
    c10::getDeviceAllocator(device.type())->emptyCache();
  }
}

}  // namespace lockstep::detail
