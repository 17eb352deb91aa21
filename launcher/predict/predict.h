#pragma once

#include <iosfwd>
#include <string>

namespace lockstep::launcher {

/// `lockstep predict`: prints what an update of the recorded step takes on each number of ranks,
/// what limits it, and which bucket size and accumulation to choose. `ranks`: "2..64" (its powers
/// of two, and both ends) or "2,3,4". Returns the exit code: 0, or 2 if an argument or a file
/// cannot be used.
int predict(const std::string& ranks, const std::string& network, const std::string& record,
            std::ostream& out, std::ostream& error);

}  // namespace lockstep::launcher
