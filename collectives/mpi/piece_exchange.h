#pragma once

#include <lockstep/collectives/mpi/eager_messages.h>
#include <lockstep/collectives/mpi/node_layout.h>

#include <vector>

namespace lockstep::detail {

/// The part of an all-gather between nodes: each node sends the pieces of its ranks once to every
/// other node. Column c carries the pieces of local ranks c, c + columns, c + 2 columns, ... One
/// exchange at a time. Ranks: those of a column, one of each node, in node order.
class PieceExchange {
 public:
  /// `column_comm`: the ranks of this rank's column; may be invalid.
  PieceExchange(const MpiComm& column_comm, const NodeLayout& layout);

  /// The ranks of other nodes whose pieces arrive at each column of this node, in this order.
  const std::vector<std::vector<int>>& arrivals() const { return arrivals_; }
  /// The largest number of arrivals at any column of any node.
  size_t most_arrivals() const { return most_arrivals_; }
  /// `pieces`: of this node's ranks, in rank order. `arrived`: room for the arrivals at this rank's
  /// column. All memory must stay until test() has returned true.
  void start(const std::vector<const void*>& pieces, int64_t bytes, char* arrived);
  /// True once all pieces have arrived.
  bool test() { return messages_.are_complete(); }

 private:
  /// The ranks of other nodes whose pieces `column` brings to `node`.
  std::vector<int> arrivals_at(int node, int column) const;
  /// Calls `take(rank, index in the node)` for the ranks of `node` that `column` carries.
  template <typename Take>
  void for_each_rank(int node, int column, const Take& take) const;

  const NodeLayout& layout_;
  const int columns_;
  std::vector<std::vector<int>> arrivals_;
  size_t most_arrivals_ = 0;
  EagerMessages messages_;
};

}  // namespace lockstep::detail
