#pragma once

#include <lockstep/collectives/host/slice.h>
#include <lockstep/collectives/kernels/reduce_kernels.h>
#include <lockstep/collectives/mpi/eager_messages.h>
#include <lockstep/collectives/mpi/node_layout.h>

#include <vector>

namespace lockstep::detail {

/// Reduces a slice in two rounds. First each node receives one share of the slice from all ranks
/// and sums it in rank order with one rounding; then it sends the result to all nodes. With n nodes
/// of up to r ranks, a node sends (n - 1) / n * (r + 1) times the slice. For a few bytes, where
/// only latency matters, one round: each node receives all elements of all ranks, and all compute
/// the same sum; a node sends (n - 1) * r times the slice. One slice at a time. Ranks: those of
/// `column`, one of each node, in node order.
class SliceExchange {
 public:
  SliceExchange(const MpiComm& column, const NodeLayout& layout);

  /// `sources`: the elements of this node's ranks, in rank order. All memory must stay until test()
  /// has returned true.
  void start(const kernels::Reduction& reduction, const std::vector<const void*>& sources,
             Span result);
  /// True once the result is written.
  bool test();

 private:
  /// The elements that a node sums.
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
