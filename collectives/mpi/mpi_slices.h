#pragma once

#include <lockstep/collectives/mpi/slice_chain.h>
#include <lockstep/collectives/mpi/slice_exchange.h>

#include <vector>

namespace lockstep::detail {

/// Reduces slices over the nodes: by SliceChain, which sends less, if each node has consecutive
/// ranks whose elements are more bytes than a sum, and the slice is not small; else by
/// SliceExchange. Both sum in rank order with one rounding, so the bits do not depend on the
/// layout. One slice at a time. Ranks: a column (InterNode::columns) is one rank of each node;
/// local ranks beyond the smallest node have none.
class MpiSlices {
 public:
  /// `column`: the ranks of this rank's column; may be invalid.
  MpiSlices(const MpiComm& column, const NodeLayout& layout);

  /// `sources`: the elements of this node's ranks, in rank order. All memory must stay until test()
  /// has returned true.
  void start(const kernels::Reduction& reduction, const std::vector<const void*>& sources,
             Span result);
  /// True once the result is written.
  bool test() { return chained_ ? chain_.test() : exchange_.test(); }

 private:
  const NodeLayout& layout_;
  SliceExchange exchange_;
  SliceChain chain_;
  bool chained_ = false;
};

}  // namespace lockstep::detail
