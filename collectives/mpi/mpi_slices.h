#pragma once

#include <lockstep/collectives/host/slice.h>
#include <lockstep/collectives/host/span.h>
#include <lockstep/collectives/kernels/reduce_kernels.h>
#include <lockstep/collectives/mpi/mpi_comm.h>

#include <vector>

namespace lockstep::detail {

/// Reduces slices among the ranks of `lane` (one of each node, in node order): each rank receives
/// its share of the slice from all others, sums the shares in node order with one rounding, and
/// sends the result to all. One slice at a time. `lane` is not valid on ranks that take part in no
/// lane.
class MpiSlices {
 public:
  explicit MpiSlices(MpiComm lane);
  MpiSlices(const MpiSlices&) = delete;
  MpiSlices& operator=(const MpiSlices&) = delete;

  void start(const kernels::Reduction& reduction, c10::ScalarType partial_dtype,
             const char* partial, c10::ScalarType dtype, char* result, int64_t n);
  /// True once the result is there.
  bool test();

 private:
  Slice share(int node) const;
  void sum_own_share();
  void send(const Span& from, const Slice& slice, int node, int tag);
  void receive(char* to, int64_t bytes, int node, int tag);
  bool requests_are_complete();

  MpiComm lane_;
  int node_ = 0;
  int nodes_ = 0;
  kernels::Reduction reduction_;
  Span partial_;
  Span result_;
  bool summed_ = false;
  std::vector<std::vector<char>> inboxes_;
  std::vector<MPI_Request> requests_;
};

}  // namespace lockstep::detail
