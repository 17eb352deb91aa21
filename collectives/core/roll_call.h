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
  std::string folder;  // shared by the ranks of a node: /dev/shm
  std::string job;     // a name that is unique to this job; empty: unknown
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;  // 0: unknown

  /// From the variables of the launcher: Open MPI's mpirun, srun with PMIx, or MPICH's hydra.
  static RollCallPlace of_environment();
};

/// Names the ranks of this node that have not arrived at a point where all ranks wait. A rank
/// counts as arrived while its RollCall object lives. For points where MPI cannot be asked: its
/// start and its end. Under `lockstep run` the launcher does this for all nodes.
///
/// Each rank makes a file in the shared folder: lockstep_MARK-POINT-JOB-LOCALRANK-RANK, where MARK
/// is that of its process (ProcessMark). Files of dead processes do not count. Threads: a thread of
/// the object calls `say`.
class RollCall {
 public:
  /// `point`: "start" or "end". Reports after `first`, then each time the wait has doubled.
  RollCall(RollCallPlace place, std::string point, std::chrono::milliseconds first,
           std::function<void(const std::string&)> say);
  ~RollCall();
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;

  /// Such as "rank 2 has not arrived (ranks 0-1 have)". Only the lowest local rank that has arrived
  /// reports; on the others the text is empty.
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
