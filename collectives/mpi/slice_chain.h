#pragma once

#include <lockstep/collectives/host/slice.h>
#include <lockstep/collectives/kernels/reduce_kernels.h>
#include <lockstep/collectives/mpi/eager_messages.h>
#include <lockstep/collectives/mpi/node_layout.h>

#include <vector>

namespace lockstep::detail {

/// Reduces a slice along a chain of nodes, each with consecutive ranks. Node 0 sums its ranks'
/// elements; each next node adds those of its ranks to the sum that it receives, in rank order; the
/// last node rounds once and sends the result back along the chain. Each piece of the slice does so
/// by itself, so that all nodes work at the same time. A node sends each sum (fp32 for 16-bit
/// elements) and each result once. One slice at a time. Ranks: those of `column`, one of each node,
/// in node order.
class SliceChain {
 public:
  SliceChain(const MpiComm& column, const NodeLayout& layout);

  /// `sources`: the elements of this node's ranks, in rank order. All memory must stay until test()
  /// has returned true.
  void start(const kernels::Reduction& reduction, const std::vector<const void*>& sources,
             Span result);
  /// True once the result is written.
  bool test();

 private:
  static constexpr int64_t kPieceElements =
      EagerMessages::kBytes / static_cast<int64_t>(sizeof(float));

  bool is_first() const { return node_ == 0; }
  bool is_last() const { return node_ == nodes_ - 1; }
  Slice piece(int64_t index) const { return chunk_of(result_.numel, index, kPieceElements); }
  void sum(const Slice& piece);
  void send(const Span& from, const Slice& piece, int node, int tag);
  void receive(std::vector<MpiRequest>& requests, const Span& to, int node, int tag);

  const MpiComm& column_;
  const int node_;
  const int nodes_;
  kernels::Reduction reduction_;
  std::vector<const void*> sources_;
  Span result_;
  Span sum_;  // over the ranks of this node and those before
  int64_t pieces_ = 0;
  int64_t summed_ = 0;    // pieces
  int64_t returned_ = 0;  // pieces whose result is complete
  std::vector<char> sum_memory_;
  std::vector<std::vector<char>> converted_;  // a piece of each rank of this node
  std::vector<MpiRequest> incoming_sums_;     // one for each piece, like the results
  std::vector<MpiRequest> incoming_results_;
  std::vector<MpiRequest> sends_;
};

}  // namespace lockstep::detail
