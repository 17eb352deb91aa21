#pragma once

#include <string>

namespace lockstep::doctor {

struct ExaminationOptions {
  std::string snapshots;    // the folder to measure; empty: none
  std::string json;         // the file to write; empty: none
  std::string stopped;      // what stop_a_rank() wrote; empty: not run
  std::string result_file;  // where to write the exit code in place of returning it; empty: nowhere
};

/// All checks, by all ranks that the launcher has started, or by this process alone. Rank 0 prints
/// the table. Returns the exit code of this rank.
int examine(int argc, char** argv, const ExaminationOptions& options);

/// A job of two ranks whose second stops itself: the first writes to `file` what its collective
/// throws.
int stop_a_rank(const std::string& file);

}  // namespace lockstep::doctor
