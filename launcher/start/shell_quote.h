#pragma once

#include <string>
#include <vector>

namespace lockstep::launcher {

/// The arguments as one line that a POSIX shell reads back as the same arguments.
std::string shell_quote(const std::vector<std::string>& arguments);

}  // namespace lockstep::launcher
