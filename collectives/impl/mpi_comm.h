#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/mpi_comm_handle.h>
#include <mpi.h>

#include <cstddef>
#include <vector>

namespace lockstep::detail {

/// Owns an MPI communicator; its errors are thrown as CommunicationError. Only for .cpp files of
/// the libraries: MPI stays out of what users include.
class MpiComm {
 public:
  MpiComm() = default;
  /// A duplicate of `comm` (MPI_Comm_dup). Collective; the error handler of `comm` stays.
  static MpiComm duplicate(MPI_Comm comm);
  /// The ranks of `comm` with the same color (MPI_UNDEFINED: none), ordered by (key, rank).
  static MpiComm split(MPI_Comm comm, int color, int key);
  /// The ranks of `comm` on this rank's node, in rank order.
  static MpiComm node_of(MPI_Comm comm);

  ~MpiComm();
  MpiComm(MpiComm&& other) noexcept;
  MpiComm& operator=(MpiComm&& other) noexcept;

  MPI_Comm get() const { return comm_; }
  bool valid() const { return comm_ != MPI_COMM_NULL; }
  int rank() const;
  int size() const;
  /// The launcher's number of each rank, in rank order: its rank in MPI_COMM_WORLD. Empty if a rank
  /// has none because the program spawned it.
  std::vector<int> job_ranks() const;

  /// Throws unless `code` is MPI_SUCCESS; `call` is the function that returned it.
  void check(int code, const char* call) const;
  /// all[k] = own of rank k. Blocking.
  void all_gather(const void* own, size_t bytes, void* all) const;
  /// Whether `own` holds on every rank. Blocking.
  bool all_agree(bool own) const;

 private:
  explicit MpiComm(MPI_Comm comm) : comm_(comm) {}
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// The communicator in a handle of the program. Throws Error (code usage) if the handle is of
/// another MPI library, or is MPI_COMM_NULL.
MPI_Comm program_comm(const MpiCommHandle& handle);

/// While the object lives, MPI calls on a communicator of the program return their errors. The
/// destructor restores the program's error handler.
class ReturnedErrors {
 public:
  [[nodiscard]] explicit ReturnedErrors(MPI_Comm comm);
  ~ReturnedErrors();
  ReturnedErrors(const ReturnedErrors&) = delete;
  ReturnedErrors& operator=(const ReturnedErrors&) = delete;

 private:
  MPI_Comm comm_;
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
};

/// Throws CommunicationError with MPI's error text unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

}  // namespace lockstep::detail
