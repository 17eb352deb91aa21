#pragma once

#include <lockstep/collectives/host/slice.h>
#include <lockstep/collectives/host/span.h>
#include <lockstep/collectives/kernels/reduce_kernels.h>
#include <lockstep/collectives/mpi/eager_messages.h>
#include <lockstep/collectives/mpi/node_layout.h>

#include <vector>

namespace lockstep::detail {

/// Reduces a slice in two rounds: each node owns a share of the slice and receives this share of
/// every rank's elements, sums them in rank order with one rounding, and sends the result to all.
/// With n nodes of up to r ranks, a node sends (n - 1) / n * (r + 1) times the slice. For a few
/// bytes, where only latency counts, one round: each node receives all elements of all ranks, and
/// all nodes compute the same sum; a node sends (n - 1) * r times the slice. One slice at a time.
/// Ranks: those of `lane`, one of each node, in node order.
class SliceExchange {
 public:
  SliceExchange(const MpiComm& lane, const NodeLayout& layout);

  /// `sources`: the elements of this node's ranks, in rank order. All memory must stay until test()
  /// has returned true.
  void start(const kernels::Reduction& reduction, const std::vector<const void*>& sources,
             Span result);
  /// True once the result is there.
  bool test();

 private:
  /// What a node sums.
  Slice share(int node) const {
    return one_round_ ? Slice{0, result_.numel}
                      : slice_of(result_.numel, node, nodes(), element_size());
  }
  int nodes() const { return static_cast<int>(layout_.nodes.size()); }
  int64_t element_size() const { return result_.element_size(); }
  void sum_own_share();
  int64_t bytes_of(const Slice& share) const { return share.size() * element_size(); }

  const NodeLayout& layout_;
  kernels::Reduction reduction_;
  std::vector<const void*> sources_;
  Span result_;
  bool one_round_ = false;
  bool summed_ = false;
  std::vector<std::vector<char>> inboxes_;  // one of each rank, in rank order
  EagerMessages messages_;
};

}  // namespace lockstep::detail
