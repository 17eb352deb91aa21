#pragma once

#include <lockstep/collectives/impl/mpi_handle.h>
#include <lockstep/collectives/mpi/mpi_abi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::detail {

/// The functions of the MPI library of this process. lockstep is built without one and takes that
/// which it finds when ranks start, so that one build of it, and of a program, runs under Open MPI
/// and under MPICH and its relatives. Each function is MPI's of the same name and returns its error
/// code. All data are bytes (MPI_BYTE), and a null handle is 0.
/// Threads: as MPI's own. Lives until the process ends.
class MpiLibrary {
 public:
  virtual ~MpiLibrary() = default;
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

  /// "Open MPI v4.1.4, ...". Before MPI_Init, too.
  virtual std::string version() const = 0;
  virtual std::string error_text(int code) const = 0;
  virtual int initialized(int* flag) const = 0;
  virtual int finalized(int* flag) const = 0;
  virtual int init_thread(int wanted, int* provided) const = 0;
  virtual int query_thread(int* provided) const = 0;
  virtual int finalize() const = 0;

  virtual MpiHandle world() const = 0;
  /// sizeof(MPI_Comm).
  virtual size_t comm_bytes() const = 0;
  /// From the bits of an MPI_Comm, and from a handle of Fortran.
  virtual MpiHandle comm_of(uint64_t bits) const = 0;
  virtual MpiHandle comm_of_fortran(int handle) const = 0;
  virtual int comm_dup(MpiHandle comm, MpiHandle* copy) const = 0;
  virtual int comm_split(MpiHandle comm, int color, int key, MpiHandle* part) const = 0;
  /// The ranks that share memory with this one (MPI_Comm_split_type).
  virtual int comm_split_shared(MpiHandle comm, int key, MpiHandle* part) const = 0;
  virtual int comm_free(MpiHandle comm) const = 0;
  virtual int comm_rank(MpiHandle comm, int* rank) const = 0;
  virtual int comm_size(MpiHandle comm, int* size) const = 0;
  /// ranks[k] = the rank in the world of rank k of `comm`, or kUndefined.
  virtual int world_ranks(MpiHandle comm, std::vector<int>* ranks) const = 0;
  virtual int get_errhandler(MpiHandle comm, MpiHandle* handler) const = 0;
  virtual int set_errhandler(MpiHandle comm, MpiHandle handler) const = 0;
  virtual int errhandler_free(MpiHandle handler) const = 0;
  virtual MpiHandle errors_return() const = 0;

  virtual int isend(const void* from, int bytes, int to, int tag, MpiHandle comm,
                    MpiHandle* request) const = 0;
  virtual int issend(const void* from, int bytes, int to, int tag, MpiHandle comm,
                     MpiHandle* request) const = 0;
  virtual int irecv(void* to, int bytes, int from, int tag, MpiHandle comm,
                    MpiHandle* request) const = 0;
  virtual int send(const void* from, int bytes, int to, int tag, MpiHandle comm) const = 0;
  virtual int recv(void* to, int bytes, int from, int tag, MpiHandle comm) const = 0;
  /// A message from `source`, or from kAnyMpiSource, with any tag.
  virtual int iprobe(int source, MpiHandle comm, int* found, MpiEnvelope* message) const = 0;
  virtual int probe(int source, MpiHandle comm, MpiEnvelope* message) const = 0;
  virtual int test(MpiHandle* request, int* complete) const = 0;
  virtual int test_all(std::vector<MpiHandle>* requests, int* complete) const = 0;
  virtual int wait(MpiHandle* request) const = 0;

  virtual int barrier(MpiHandle comm) const = 0;
  virtual int bcast(void* data, int bytes, int root, MpiHandle comm) const = 0;
  virtual int allgather(const void* own, int bytes, void* all, MpiHandle comm) const = 0;
  virtual int allgatherv(const void* own, int bytes, void* all, const int* sizes, const int* begins,
                         MpiHandle comm) const = 0;
  virtual int ibarrier(MpiHandle comm, MpiHandle* request) const = 0;
  virtual int ibcast(void* data, int bytes, int root, MpiHandle comm, MpiHandle* request) const = 0;
  virtual int iallgather(const void* own, int bytes, void* all, MpiHandle comm,
                         MpiHandle* request) const = 0;

 protected:
  MpiLibrary() = default;
};

}  // namespace lockstep::detail
