#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <string>
#include <vector>

namespace lockstep::detail {

/// The names among `known` that are most like `name`, at most three, quoted, the most alike first:
/// "accumulate", "autocast". For messages about a name that is not known.
std::string nearest_names(const std::string& name, const std::vector<std::string>& known);

}  // namespace lockstep::detail
