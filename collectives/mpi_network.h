#pragma once

#include <lockstep/collectives/host_transport.h>
#include <lockstep/collectives/mpi_comm.h>

#include <memory>
#include <vector>

namespace lockstep {

/// Which ranks share which node.
struct NodeLayout {
  /// Communicator ranks, ascending; nodes in the order of their first rank.
  std::vector<std::vector<int>> nodes;
  int own_node = 0;
  int local_rank = 0;

  const std::vector<int>& ranks_of_this_node() const {
    return nodes[static_cast<size_t>(own_node)];
  }
  /// The ranks of the smallest node.
  int lanes() const;
};

/// Collective over `all`; `node` is this rank's part of it.
NodeLayout find_nodes(const MpiComm& all, const MpiComm& node);

/// Both are collective over `all`, and keep copies of it.
std::unique_ptr<OtherNodes> make_mpi_other_nodes(const MpiComm& all);
std::unique_ptr<NodeNetwork> make_mpi_network(const MpiComm& all, const NodeLayout& layout);

}  // namespace lockstep
