#pragma once

#include <string>

namespace lockstep::doctor {

struct ExaminationOptions {
  std::string snapshots;    // the folder to measure; empty: none
  std::string json;         // the file to write; empty: none
  std::string stopped;      // the text that stop_a_rank() wrote; empty: not run
  std::string result_file;  // file for the exit code, which is then not returned; empty: none
  bool is_small = false;    // few elements, no speeds: for a device that is interpreted
};

/// Runs all checks on the ranks that the launcher has started, or in this process alone. Rank 0
/// prints the table. Returns the exit code of this rank.
int examine(int argc, char** argv, const ExaminationOptions& options);

/// Run by a job of two ranks: rank 1 stops itself, rank 0 writes the error of its collective to
/// `file`.
int stop_a_rank(const std::string& file);

}  // namespace lockstep::doctor
