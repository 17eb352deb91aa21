#pragma once

#include <string>
#include <vector>

namespace lockstep::launcher {

/// The end of a message about a name that is none of `names`: "; did you mean run?" if one of them
/// is what was probably meant, else empty. Near are names that differ in at most two letters that
/// are wrong, missing or too many.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& names);

}  // namespace lockstep::launcher
