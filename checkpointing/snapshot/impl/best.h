#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <string>

namespace lockstep::snapshot {

/// The path of the snapshot with the best metric in the folder of a run; see best_snapshot().
std::string find_best(const std::string& folder);

}  // namespace lockstep::snapshot
