#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/mpi_comm_handle.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// Makes the communicator of all ranks from MPI. Initialises MPI unless the program has done so,
/// and finalises MPI only if it initialised it.
///
/// Without a launcher in the environment (mpirun, srun, hydra, Flux, jsrun, Cray PALS), and unless
/// the program has initialised MPI, MPI stays down and the world is Communicator::solo(). If the
/// program has initialised MPI, its world is taken as it is, whatever the environment says.
/// Ranks: every rank constructs one, once per process. A second one while the first exists throws
/// Error, and so does one after MPI was finalised, because MPI cannot start again. The destructor
/// finalises MPI, which waits for all ranks. If an exception is being unwound, or a collective has
/// failed, the destructor returns at once instead, so that the launcher sees this rank die and ends
/// the others. After a failed collective another one throws Error (exit code peer_lost), because
/// it would wait for ranks that do not come.
/// The MPI library: the one of this process, else the launcher's kind of those that the dynamic
/// linker finds, or LOCKSTEP_MPI (docs/building.md). lockstep is linked to none.
/// MPI's thread level: MPI_THREAD_SERIALIZED is needed, MPI_THREAD_MULTIPLE is asked for. In
/// backward on a device, autograd calls the hooks of gradients, and so MPI, from a thread of its
/// own, while the thread that called backward waits. No two threads of lockstep call MPI at the
/// same time; the thread that writes a snapshot, the workers of a loader and the watchdog never do.
/// A program that initialises MPI itself calls MPI_Init_thread with one of these two levels.
/// Errors: Error (code environment) on every rank if MPI's thread level is lower on any rank, if
/// the launcher started a different number of ranks than MPI sees, if srun started tasks that MPI
/// cannot join, if no MPI library is found or two are loaded, or if a Slurm job with several tasks
/// starts the program without srun, mpirun or `lockstep run`.
class MpiSession {
 public:
  explicit MpiSession(CommunicatorOptions options = {});
  /// A guest on `comm`, a communicator of a program that initialised MPI: world() has the ranks of
  /// `comm`, in their order. Every rank of `comm` constructs one, and no other rank takes part. A
  /// process may have several at a time, and more after another, each on a communicator of its
  /// own or on the same one. The construction duplicates `comm`, which waits for its ranks without
  /// a deadline, as MPI's own calls do. Nothing of MPI's state in the program changes: error
  /// handlers stay, nothing is finalised. Destroy it before MPI_Finalize.
  /// Errors: Error (code usage) if MPI is not initialised, or for MPI_COMM_NULL; for the thread
  /// level as above.
  MpiSession(MpiCommHandle comm, CommunicatorOptions options);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  Communicator world() const;
  /// Returns a function to call, from any thread, when something that was built on world() has
  /// failed. After that call the destructor does not wait for the other ranks.
  std::function<void()> failure_mark() const;
  /// Gathers every rank's bytes, in rank order, at the end of the session. Collective. Like the
  /// destructor, it waits for all ranks without a deadline. Drop all copies of world() before the
  /// call, so that ranks which are still working see that this rank left. The result is empty
  /// without MPI, and after a collective has failed. A guest's ranks call MPI on `comm` itself; a
  /// failure there throws CommunicationError, whatever error handler the program has set.
  std::vector<std::string> leave_with(const std::string& bytes);
  /// "Open MPI v4.1.4, ...", or empty if MPI is not in use.
  std::string library_version() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
