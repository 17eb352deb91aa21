#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/communicator.h>

namespace lockstep::detail {

/// Gives each rank whose LibTorch generators were seeded as those of a lower rank's process are a
/// stream of its own, of (that seed, rank): else dropout would be the same on both. Ranks that were
/// seeded differently keep their streams, as do the lowest of those alike, and ranks that are
/// threads of one process, which share its generators. Collective.
void separate_random_streams(const Communicator& control);

}  // namespace lockstep::detail
