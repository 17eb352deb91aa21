#pragma once

#include <lockstep/collectives/host/inter_node.h>
#include <lockstep/collectives/mpi/mpi_comm.h>

#include <memory>
#include <vector>

namespace lockstep::detail {

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

/// The InterNode that MPI carries. Collective over `all`, of which the result keeps copies.
std::unique_ptr<InterNode> make_mpi_inter_node(const MpiComm& all, const NodeLayout& layout);

}  // namespace lockstep::detail
