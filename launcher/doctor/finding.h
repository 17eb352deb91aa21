#pragma once

#include <functional>
#include <string>
#include <vector>

namespace lockstep::doctor {

/// Sorted by weight. skipped: there is nothing to check here, or the user left it out.
enum class Status { ok, skipped, warning, failure };

/// What a check found, one line, and what the user does about a warning or failure.
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
