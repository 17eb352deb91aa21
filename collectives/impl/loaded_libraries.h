#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <string>
#include <vector>

namespace lockstep::detail {

/// The shared libraries of this process.
std::vector<std::string> loaded_libraries();

/// The one of `libraries` whose file is named `name` or `name`.something; empty where there is
/// none. Throws Error (code environment) naming them where there are two: each would hold state of
/// its own.
std::string one_library(const std::vector<std::string>& libraries, const std::string& name);

}  // namespace lockstep::detail
