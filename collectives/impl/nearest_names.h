#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::detail {

/// The number of letters to change, add or leave out between two words (Levenshtein).
size_t edit_distance(const std::string& a, const std::string& b);

/// At most three names of `known` that are most similar to `name`, the most similar first, quoted:
/// "accumulate", "autocast". For messages about an unknown name.
std::string nearest_names(const std::string& name, const std::vector<std::string>& known);

}  // namespace lockstep::detail
