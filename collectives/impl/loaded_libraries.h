#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <string>
#include <vector>

namespace lockstep::detail {

/// The shared libraries of this process.
std::vector<std::string> loaded_libraries();

/// The path in `libraries` whose file is `name` or `name`.SUFFIX; empty: there is none. Throws
/// Error (code environment) that names them if there are two: each would have its own state.
std::string one_library(const std::vector<std::string>& libraries, const std::string& name);

}  // namespace lockstep::detail
