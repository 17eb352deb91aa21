#pragma once

#include <lockstep/collectives/mpi/eager_messages.h>
#include <lockstep/collectives/mpi/node_layout.h>

#include <vector>

namespace lockstep::detail {

/// The part of an all-gather between nodes: each node sends the pieces of its ranks once to every
/// other node. Lane l carries the pieces of local ranks l, l + lanes, l + 2 lanes, ... One exchange
/// at a time. Ranks: those of a lane, one of each node, in node order.
class PieceExchange {
 public:
  /// `lane_comm`: the ranks of this rank's lane; may be invalid.
  PieceExchange(const MpiComm& lane_comm, const NodeLayout& layout);

  /// The ranks of other nodes whose pieces arrive at each lane of this node, in this order.
  const std::vector<std::vector<int>>& arrivals() const { return arrivals_; }
  /// The largest number of arrivals at any lane of any node.
  size_t most_arrivals() const { return most_arrivals_; }
  /// `pieces`: of this node's ranks, in rank order. `arrived`: room for the arrivals at this rank's
  /// lane. All memory must stay until test() has returned true.
  void start(const std::vector<const void*>& pieces, int64_t bytes, char* arrived);
  /// True once all pieces have arrived.
  bool test() { return messages_.are_complete(); }

 private:
  /// The ranks of other nodes whose pieces `lane` brings to `node`.
  std::vector<int> arrivals_at(int node, int lane) const;
  /// Calls `take(rank, index among the node's ranks)` for the ranks of `node` that `lane` carries.
  template <typename Take>
  void for_each_rank(int node, int lane, const Take& take) const;

  const NodeLayout& layout_;
  const int lanes_;
  std::vector<std::vector<int>> arrivals_;
  size_t most_arrivals_ = 0;
  EagerMessages messages_;
};

}  // namespace lockstep::detail
