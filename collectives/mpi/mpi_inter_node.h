#pragma once

#include <lockstep/collectives/host/inter_node.h>
#include <lockstep/collectives/impl/mpi_comm.h>
#include <lockstep/collectives/mpi/node_layout.h>

#include <memory>

namespace lockstep::detail {

/// Makes an InterNode that uses MPI, with duplicates of `all`. Collective over `all`.
std::unique_ptr<InterNode> make_mpi_inter_node(const MpiComm& all, const NodeLayout& layout);

}  // namespace lockstep::detail
