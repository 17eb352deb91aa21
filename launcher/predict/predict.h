#pragma once

#include <iosfwd>
#include <string>

#include "predict/forecast.h"

namespace lockstep::launcher {

/// What the user asks `lockstep predict`.
struct Question {
  std::string ranks = "2..64";  // its powers of two, and both ends; or "2,3,4"
  std::string network;          // a file for Network::read()
  std::string record;           // a file for StepRecord::read()
  Sharding sharding;
};

/// `lockstep predict`: prints what an update of the recorded step takes on each number of ranks,
/// what limits it, and which bucket size and accumulation to choose. Returns the exit code: 0, or 2
/// if an argument or a file cannot be used.
int predict(const Question& question, std::ostream& out, std::ostream& error);

}  // namespace lockstep::launcher
