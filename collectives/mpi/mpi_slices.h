#pragma once

#include <lockstep/collectives/mpi/slice_chain.h>
#include <lockstep/collectives/mpi/slice_exchange.h>

#include <vector>

namespace lockstep::detail {

/// Reduces slices over the nodes: by the exchange, which has two rounds, where slices are small, or
/// where the ranks' elements are no more bytes than a sum; else by the chain, which sends less.
/// Both sum in rank order with one rounding, so the bits do not depend on the layout. One slice at
/// a time. Ranks: one of each node makes up a lane; local ranks past the smallest node have none.
class MpiSlices {
 public:
  /// `lane`: the ranks of this rank's lane, if it has one.
  MpiSlices(const MpiComm& lane, const NodeLayout& layout);

  /// `sources`: the elements of this node's ranks, in rank order. All memory must stay until test()
  /// has returned true.
  void start(const kernels::Reduction& reduction, const std::vector<const void*>& sources,
             Span result);
  /// True once the result is there.
  bool test() { return chained_ ? chain_.test() : exchange_.test(); }

 private:
  const NodeLayout& layout_;
  SliceExchange exchange_;
  SliceChain chain_;
  bool chained_ = false;
};

}  // namespace lockstep::detail
