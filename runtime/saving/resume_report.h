#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// The result of Trainer::resume().
struct ResumeReport {
  /// False: the folder has no snapshot, and the run starts from the beginning.
  bool resumed = false;
  int64_t update = 0;
  std::string path;  // of the snapshot
  /// Newer snapshots that cannot be used, with the reason, and differences from the run that saved
  /// the snapshot. Rank 0 prints the notes on standard error.
  std::vector<std::string> notes;
};

}  // namespace lockstep
