#pragma once

#include <lockstep/collectives/error.h>
#include <mpi.h>

namespace lockstep::detail {

/// Owns an MPI communicator, whose failures become CommunicationError. Only for .cpp files of
/// this library: MPI stays out of what users include.
class MpiComm {
 public:
  MpiComm() = default;
  /// A copy with its own message space. Collective over `comm`.
  static MpiComm duplicate(MPI_Comm comm);
  /// Those of `comm` that pass the same color (MPI_UNDEFINED: none), in the order of key, rank.
  static MpiComm split(MPI_Comm comm, int color, int key);
  /// The ranks of `comm` that share this rank's memory, in the order of rank.
  static MpiComm node_of(MPI_Comm comm);

  ~MpiComm();
  MpiComm(MpiComm&& other) noexcept;
  MpiComm& operator=(MpiComm&& other) noexcept;

  MPI_Comm get() const { return comm_; }
  bool valid() const { return comm_ != MPI_COMM_NULL; }
  int rank() const;
  int size() const;

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

/// Throws CommunicationError with MPI's words unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

}  // namespace lockstep::detail
