#pragma once

#include <lockstep/checkpointing/snapshot/snapshot.h>
#include <lockstep/collectives/communicator.h>

#include <optional>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// The result of find_newest().
struct Newest {
  /// The undamaged snapshot with the highest step, of several of that step the last; empty if there
  /// is none.
  std::optional<Snapshot> snapshot;
  /// One line for each newer snapshot that cannot be used, with the reason, and one line if the
  /// file `latest` names another snapshot.
  std::vector<std::string> notes;
};

/// The result of open_verified().
struct Opened {
  std::optional<Snapshot> snapshot;
  std::string failure;  // the reason if `snapshot` is empty
};

/// Opens a snapshot and checks every byte of it; the ranks divide the work. Later reads do not
/// check digests again. Ranks: collective; the same result on each.
Opened open_verified(const std::string& path, const Communicator& ranks);

/// Finds the snapshot in `folder` from which a run resumes. Every byte of it is read and checked;
/// the ranks divide the work. Names of incomplete snapshots and of other files are ignored.
/// Ranks: collective; the same result on each. Errors: the same Error on every rank.
Newest find_newest(const std::string& folder, const Communicator& ranks);

}  // namespace lockstep::snapshot
