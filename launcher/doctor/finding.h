#pragma once

#include <functional>
#include <string>
#include <vector>

namespace lockstep::doctor {

/// In ascending order of severity. skipped: not applicable, or left out by the user.
enum class Status { ok, skipped, warning, failure };

/// The result of a check in one line, and what to do about a warning or failure.
struct Finding {
  Status status = Status::ok;
  std::string what;
  std::string fix;
};

/// One row of the table.
struct Row {
  std::string name;
  Finding finding;
};

}  // namespace lockstep::doctor
