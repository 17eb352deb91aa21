#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/communicator.h>

namespace lockstep::detail {

/// Makes random numbers differ between ranks whose LibTorch generators have the same seed: else
/// dropout would be the same on them. The lowest of these ranks keeps its stream; the others are
/// seeded with (that seed, rank). Ranks that are threads of one process share its generators, and
/// only the lowest of them seeds. Collective.
void separate_random_streams(const Communicator& control);

}  // namespace lockstep::detail
