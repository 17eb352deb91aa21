#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/impl/mpi_handle.h>
#include <lockstep/collectives/mpi_comm_handle.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// Owns an MPI communicator. Its errors are thrown as CommunicationError, which names the rank and
/// MPI's function. All data are bytes.
class MpiComm {
 public:
  MpiComm() = default;
  /// A duplicate of `comm` (MPI_Comm_dup). Collective; the error handler of `comm` stays.
  static MpiComm duplicate(MpiHandle comm);
  /// The ranks of `comm` with the same color (kNoColor: none), ordered by (key, rank).
  static MpiComm split(MpiHandle comm, int color, int key);
  /// The ranks of `comm` on this rank's node, in rank order.
  static MpiComm node_of(MpiHandle comm);

  ~MpiComm();
  MpiComm(MpiComm&& other) noexcept;
  MpiComm& operator=(MpiComm&& other) noexcept;

  MpiHandle get() const { return comm_; }
  bool valid() const { return comm_ != 0; }
  int rank() const;
  int size() const;
  /// The launcher's number of each rank, in rank order: its rank in MPI_COMM_WORLD. Empty if a rank
  /// has none because the program spawned it.
  std::vector<int> job_ranks() const;

  /// These start a transfer and return.
  void isend(const void* from, int bytes, int to, int tag, MpiRequest& request) const;
  /// Complete only when it is received, however small.
  void issend(const void* from, int bytes, int to, int tag, MpiRequest& request) const;
  void irecv(void* to, int bytes, int from, int tag, MpiRequest& request) const;
  void ibarrier(MpiRequest& request) const;
  void ibroadcast(void* data, int bytes, int root, MpiRequest& request) const;
  void iall_gather(const void* own, int bytes, void* all, MpiRequest& request) const;
  /// True once the transfer is complete, and for one that never began.
  bool test(MpiRequest& request) const;
  bool test_all(std::vector<MpiRequest>& requests) const;

  /// The next message of `source`, or of any rank, if one has arrived.
  std::optional<MpiEnvelope> arrived(int source = kAnyMpiSource) const;

  /// Lets MPI move the messages of this process that are under way. Nothing after MPI_Finalize.
  void progress() const;

  /// These wait.
  void wait(MpiRequest& request) const;
  MpiEnvelope next_from(int source) const;
  void send(const void* from, int bytes, int to, int tag) const;
  void receive(void* to, int bytes, int from, int tag) const;
  void barrier() const;
  void broadcast(void* data, int bytes, int root) const;
  /// all[k] = own of rank k.
  void all_gather(const void* own, size_t bytes, void* all) const;
  /// Whether `own` holds on every rank.
  bool all_agree(bool own) const;

  static constexpr int kNoColor = -32766;  // MPI_UNDEFINED

 private:
  explicit MpiComm(MpiHandle comm) : comm_(comm) {}
  /// Throws unless `code` is MPI_SUCCESS; `call` is the function that returned it.
  void check(int code, const char* call) const;

  MpiHandle comm_ = 0;
};

/// The communicator in a handle of the program. Throws Error (code usage) if the handle is of
/// another MPI library, or is MPI_COMM_NULL. Needs MPI in the process.
MpiHandle program_comm(const MpiCommHandle& handle);

/// While the object lives, MPI calls on a communicator of the program return their errors. The
/// destructor restores the program's error handler.
class ReturnedErrors {
 public:
  [[nodiscard]] explicit ReturnedErrors(MpiHandle comm);
  ~ReturnedErrors();
  ReturnedErrors(const ReturnedErrors&) = delete;
  ReturnedErrors& operator=(const ReturnedErrors&) = delete;

 private:
  MpiHandle comm_;
  MpiHandle before_ = 0;
};

/// Throws CommunicationError with MPI's error text unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

/// "Open MPI v4.1.4", and "MPI_THREAD_MULTIPLE". Both empty while MPI is not in use.
struct MpiFacts {
  std::string library;
  std::string thread_level;
};
MpiFacts mpi_facts();
/// "MPI_THREAD_SINGLE" to "MPI_THREAD_MULTIPLE", of MPI's number.
const char* thread_level_name(int level);

}  // namespace lockstep::detail
