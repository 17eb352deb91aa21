#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "expect.h"

/// Ranks as processes, for the checks of NCCL. The process that starts them never calls CUDA.
namespace fake_cuda::checks {

constexpr int kMostRanks = 8;
constexpr unsigned kSecondsForACheck = 280;

/// Between two looks. A rank that spins would take the processor from the others.
inline void pause_a_little() {
  std::this_thread::sleep_for(std::chrono::microseconds(100));
}

/// Throws what did not hold; the rank ends with it.
inline void require(bool holds, const std::string& what) {
  if (!holds) {
    throw std::runtime_error(what);
  }
}
inline void require_cuda(cudaError_t error, const std::string& what) {
  require(error == cudaSuccess, what + ": " + cudaGetErrorString(error));
}
inline void require_nccl(ncclResult_t result, ncclResult_t expected, const std::string& what) {
  require(result == expected, what + ": " + ncclGetErrorString(result));
}

/// What the processes of one check share.
struct Shared {
  std::atomic<int> id_is_made{0};
  ncclUniqueId id;
  std::atomic<int> stages[kMostRanks];
  char failures[kMostRanks][400];
};

/// One rank of a check, inside of its process.
class Rank {
 public:
  Rank(int rank, int ranks, Shared* shared) : rank_(rank), ranks_(ranks), shared_(shared) {}

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// Of rank 0, for all.
  ncclUniqueId unique_id() {
    if (rank_ == 0 && shared_->id_is_made == 0) {
      require_nccl(ncclGetUniqueId(&shared_->id), ncclSuccess, "ncclGetUniqueId");
      shared_->id_is_made = 1;
    }
    while (shared_->id_is_made == 0) {
      pause_a_little();
    }
    return shared_->id;
  }

  /// A communicator of all ranks that blocks.
  ncclComm_t communicator() {
    ncclComm_t comm = nullptr;
    require_nccl(ncclCommInitRank(&comm, ranks_, unique_id(), rank_), ncclSuccess,
                 "ncclCommInitRank");
    return comm;
  }

  /// Tells how far this rank is, and waits until another is there.
  void reach(int stage) { shared_->stages[rank_] = stage; }
  void wait_for(int rank, int stage) {
    while (shared_->stages[rank] < stage) {
      pause_a_little();
    }
  }
  void meet(int stage) {
    reach(stage);
    for (int rank = 0; rank < ranks_; ++rank) {
      wait_for(rank, stage);
    }
  }

 private:
  int rank_;
  int ranks_;
  Shared* shared_;
};

/// Of one element type on the device.
template <typename Element>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<Element>& values) : size_(values.size()) {
    require_cuda(cudaMalloc(reinterpret_cast<void**>(&memory_), size_ * sizeof(Element)),
                 "cudaMalloc");
    require_cuda(
        cudaMemcpy(memory_, values.data(), size_ * sizeof(Element), cudaMemcpyHostToDevice),
        "cudaMemcpy");
    // A copy from pageable memory may return before it ends, and other streams do not wait for it.
    require_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  DeviceArray(size_t size, Element value) : DeviceArray(std::vector<Element>(size, value)) {}
  ~DeviceArray() { cudaFree(memory_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  Element* data() { return memory_; }
  /// Waits for the device.
  std::vector<Element> values() const {
    std::vector<Element> values(size_);
    require_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    require_cuda(
        cudaMemcpy(values.data(), memory_, size_ * sizeof(Element), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
    return values;
  }

 private:
  Element* memory_ = nullptr;
  size_t size_;
};

class Stream {
 public:
  Stream() { require_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  operator cudaStream_t() const { return stream_; }
  void synchronize() const { require_cuda(cudaStreamSynchronize(stream_), "synchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// The state of a communicator when it is no longer in progress.
inline ncclResult_t settled(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    require_nccl(ncclCommGetAsyncError(comm, &state), ncclSuccess, "ncclCommGetAsyncError");
    pause_a_little();
  }
  return state;
}

/// Waits until the communicator has an error, and returns it.
inline ncclResult_t error_of(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  while (state == ncclSuccess || state == ncclInProgress) {
    require_nccl(ncclCommGetAsyncError(comm, &state), ncclSuccess, "ncclCommGetAsyncError");
    pause_a_little();
  }
  return state;
}

/// How a rank's process ended. Each rank has the device of its number.
using Body = std::function<void(Rank&)>;

inline std::string run_rank(const Body& body, int number, int ranks, Shared* shared) {
  alarm(kSecondsForACheck);  // a rank that hangs ends with this signal
  try {
    require_cuda(cudaSetDevice(number), "cudaSetDevice");
    Rank rank(number, ranks, shared);
    body(rank);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// Runs the body on each rank in a process of its own. A check holds if no rank fails; the ranks in
/// `killed` have to end by SIGKILL.
inline void check(const std::string& name, int ranks, const Body& body,
                  const std::vector<int>& killed = {}) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* shared = new (memory) Shared;
  std::vector<pid_t> processes;
  std::fflush(nullptr);
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t process = fork();
    if (process == 0) {
      const std::string failure = run_rank(body, rank, ranks, shared);
      std::snprintf(shared->failures[rank], sizeof shared->failures[rank], "%s", failure.c_str());
      std::exit(failure.empty() ? 0 : 1);
    }
    processes.push_back(process);
  }
  std::string failures;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    waitpid(processes[rank], &status, 0);
    bool must_die = false;
    for (const int one : killed) {
      must_die = must_die || one == rank;
    }
    const bool died = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const bool well = must_die ? died : WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!well) {
      const std::string how =
          WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status)) : "";
      failures += "; rank " + std::to_string(rank) + ": " + how + shared->failures[rank];
    }
  }
  expect(failures.empty(), name + failures);
  munmap(memory, sizeof(Shared));
}

}  // namespace fake_cuda::checks
