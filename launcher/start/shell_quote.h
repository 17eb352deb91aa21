#pragma once

#include <string>
#include <vector>

namespace lockstep::launcher {

/// Quotes the arguments so that a POSIX shell reads the line back as the same arguments.
std::string shell_quote(const std::vector<std::string>& arguments);

}  // namespace lockstep::launcher
