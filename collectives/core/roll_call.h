#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep::detail {

/// One rank among those of its node and job.
struct RollCallPlace {
  std::string folder;  // that the ranks of a node share: /dev/shm
  std::string job;     // a name that only the ranks of this job have; empty: unknown
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;  // 0: unknown

  /// As the launcher says: Open MPI's mpirun, srun with PMIx, or MPICH's hydra.
  static RollCallPlace of_environment();
};

/// While it lives, this rank counts as arrived at a point where ranks wait for each other, and says
/// from time to time which ranks of this node have not arrived. For points where MPI is not there
/// to ask: its own start and end. Under `lockstep run` the launcher does this for all nodes.
///
/// Ranks leave a file in the shared folder: lockstep-PROCESS-POINT-JOB-LOCALRANK-RANK. Files of
/// processes that are gone do not count. Threads: it has one of its own, which calls `say`.
class RollCall {
 public:
  /// `point`: "start" or "end". Says something after `first`, and each time the wait has doubled.
  RollCall(RollCallPlace place, std::string point, std::chrono::milliseconds first,
           std::function<void(const std::string&)> say);
  ~RollCall();
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;

  /// What is known now: "rank 2 has not arrived (ranks 0-1 have)". Empty if another rank of this
  /// node has arrived before this one in the order of ranks, and says the same.
  std::string report() const;

 private:
  void watch(std::chrono::milliseconds first);

  RollCallPlace place_;
  std::string point_;
  std::function<void(const std::string&)> say_;
  void remove_file() noexcept;

  std::string file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace lockstep::detail
