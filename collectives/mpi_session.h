#pragma once

#include <lockstep/collectives/communicator.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// Owns MPI for the life of the process: initialises it if nobody has, finalises it only then.
///
/// With no launcher (no mpirun, srun or hydra in the environment) MPI is not even initialised and
/// the world is Communicator::solo().
/// Ranks: constructed by every rank, once a process: Error for a second one beside it, and for one
/// after MPI was finalised, which cannot start again. The destructor finalises MPI, which waits for
/// all ranks, unless an exception is being unwound or a collective has failed: then it returns at
/// once so that the launcher sees this rank die and ends the others.
/// Errors: Error (code environment) on every rank when the launcher started another number of ranks
/// than MPI sees, when srun started tasks that MPI cannot join, or when a Slurm job of several
/// tasks starts the program without srun or mpirun.
class MpiSession {
 public:
  explicit MpiSession(CommunicatorOptions options = {});
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  Communicator world() const;
  /// To be called, from any thread, when what was built on world() has failed: the destructor then
  /// does not wait for the other ranks.
  std::function<void()> failure_mark() const;
  /// Every rank's bytes, in rank order, when all have come to the end, however late: as the
  /// destructor, this waits without a deadline. Collective. Drop all copies of world() before, so
  /// that ranks which are still at work see that this one left. Empty without MPI, and where a
  /// collective has failed.
  std::vector<std::string> leave_with(const std::string& bytes);
  /// "Open MPI v4.1.4, ...", or empty when MPI is not in use.
  std::string library_version() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
