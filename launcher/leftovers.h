#pragma once

#include <string>
#include <vector>

namespace lockstep::launcher {

/// Where runs leave files when they are killed.
struct LeftoverPlaces {
  std::string shared_memory = "/dev/shm";
  std::string temporary;  // TMPDIR, or /tmp
  std::string processes = "/proc";
  int min_age_seconds = 60;  // of a segment that no process maps: it may be about to
};

LeftoverPlaces leftover_places();

/// Removes what dead processes of this user on this host left, and returns what that was: Open
/// MPI's session folders, its shared memory that no process maps any more, and lockstep's.
std::vector<std::string> remove_leftovers(const LeftoverPlaces& places);

}  // namespace lockstep::launcher
