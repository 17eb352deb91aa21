#pragma once

#include <lockstep/collectives/communicator.h>

namespace lockstep::testing {

/// All ranks of this test. For programs made by lockstep_add_mpi_test() with its default main; a
/// collective waits 30 s for its peers there.
Communicator& world();

}  // namespace lockstep::testing
