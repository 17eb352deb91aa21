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

/// Whether a process that is not found here is dead: false in a container, which may share folders
/// with processes that it does not see.
bool sees_all_processes(const LeftoverPlaces& places);

/// The paths of what dead processes of this user on this host left: lockstep's files in shared
/// memory, Open MPI's shared memory that no process maps any more, and its session folders.
///
/// A file counts only if its whole name is one that lockstep or Open MPI gives, and if it is a
/// regular file of this user with that name alone; a session folder, only if all that is in it is
/// Open MPI's. Nothing counts where `sees_all_processes` is false. Links are never followed.
std::vector<std::string> find_leftovers(const LeftoverPlaces& places);

/// Removes them, and returns the paths of those that are gone.
std::vector<std::string> remove_leftovers(const LeftoverPlaces& places);

}  // namespace lockstep::launcher
