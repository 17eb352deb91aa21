#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::detail {

/// How far a rank is with the calls of one communicator.
struct OpenCalls {
  /// What a rank must know to take part in a call that it has not made.
  struct Form {
    int64_t chunks;
    bool staged;
  };
  std::string communicator;
  int ranks = 0;            // of the communicator
  uint64_t issued = 0;      // calls of this rank
  std::vector<Form> forms;  // of the newest of them, which are not complete

  std::string to_text() const;
};

/// What all ranks say of one communicator together.
struct CallsOfRanks {
  int ranks = 0;
  int found = 0;                      // ranks that still have the communicator
  uint64_t common = 0;                // calls that all of them have made
  uint64_t last = 0;                  // calls of the rank with most
  bool alike = true;                  // whether ranks that have made a call all made the same one
  std::vector<OpenCalls::Form> rest;  // of those from common + 1 to last
};

/// The communicators of all ranks, by name. `texts`: of each rank, OpenCalls::to_text() in a row.
std::map<std::string, CallsOfRanks> compare_calls(const std::vector<std::string>& texts);

}  // namespace lockstep::detail
