#pragma once

#include <lockstep/collectives/mpi_comm.h>
#include <lockstep/collectives/node_steps.h>

#include <memory>

namespace lockstep {

/// Reduces slices among the ranks of `lane` (one of each node, in node order): each rank receives
/// its share of the slice from all others, sums the shares in node order with one rounding, and
/// sends the result to all. `lane` is not valid on ranks that take part in no lane.
std::unique_ptr<SliceExchange> make_mpi_slices(MpiComm lane, int lanes, bool nodes_are_ranks);

}  // namespace lockstep
