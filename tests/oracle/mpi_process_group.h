#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace lockstep::testing {

/// A c10d process group whose collectives are blocking MPI calls on MPI_COMM_WORLD: what a
/// c10d::Reducer needs, and no more (all-reduce sums, broadcasts, CPU tensors).
/// Ranks: all, once MPI is up.
c10::intrusive_ptr<c10d::ProcessGroup> make_mpi_process_group();

}  // namespace lockstep::testing
