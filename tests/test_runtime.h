#pragma once

#include <lockstep/runtime/runtime.h>

namespace lockstep::testing {

/// The Runtime of this test. For programs made by lockstep_add_mpi_test(... RUNTIME_MAIN); a
/// collective waits 30 s for its peers there.
Runtime& runtime();

}  // namespace lockstep::testing
