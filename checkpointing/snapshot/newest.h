#pragma once

#include <lockstep/checkpointing/snapshot/snapshot.h>
#include <lockstep/collectives/communicator.h>

#include <optional>
#include <string>
#include <vector>

namespace lockstep::snapshot {

struct Newest {
  /// The one with the highest step that is whole; none if there is none.
  std::optional<Snapshot> snapshot;
  /// One line for each newer one that cannot be used and why, and for a `latest` that names
  /// another.
  std::vector<std::string> notes;
};

struct Opened {
  std::optional<Snapshot> snapshot;
  std::string failure;  // why there is none
};

/// Opens a snapshot and checks every byte of it, spread over the ranks; what is read from it later
/// is not checked again. Ranks: all; the same result on each.
Opened open_verified(const std::string& path, Communicator& ranks);

/// Finds what a run in this folder goes on from. Every byte is read and checked, spread over the
/// ranks; unfinished and foreign names are passed over.
/// Ranks: all; the same result on each. Errors: the same on each.
Newest find_newest(const std::string& folder, Communicator& ranks);

}  // namespace lockstep::snapshot
