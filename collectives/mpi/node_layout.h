#pragma once

#include <lockstep/collectives/impl/mpi_comm.h>

#include <vector>

namespace lockstep::detail {

/// The ranks of each node.
struct NodeLayout {
  /// Communicator ranks, ascending; nodes in the order of their first rank.
  std::vector<std::vector<int>> nodes;
  int own_node = 0;
  int local_rank = 0;

  const std::vector<int>& ranks_of_this_node() const {
    return nodes[static_cast<size_t>(own_node)];
  }
  /// The number of ranks.
  int size() const;
  /// The number of ranks of the smallest node and of the largest.
  int smallest() const;
  int largest() const;
  /// Whether each node has consecutive ranks.
  bool in_rank_order() const;
};

/// Collective over `all`; `node` has the ranks of this rank's node.
NodeLayout find_nodes(const MpiComm& all, const MpiComm& node);

}  // namespace lockstep::detail
