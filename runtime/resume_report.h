#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// What Trainer::resume() found.
struct ResumeReport {
  /// False: the folder has no snapshot, the run starts from the beginning.
  bool resumed = false;
  int64_t update = 0;
  std::string path;  // of the snapshot
  /// Newer snapshots that cannot be used and why, and what is not as in the run that saved it. Rank
  /// 0 prints them to stderr.
  std::vector<std::string> notes;
};

}  // namespace lockstep
