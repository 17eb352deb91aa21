#pragma once

#include <string>
#include <vector>

namespace lockstep::launcher {

/// Where killed runs leave files.
struct LeftoverPlaces {
  std::string shared_memory = "/dev/shm";
  std::string temporary;  // TMPDIR, or /tmp
  std::string processes = "/proc";
  int min_age_seconds = 60;  // of a segment that no process maps (yet)
};

LeftoverPlaces leftover_places();

/// Whether a process that is not found is dead. False in a container, which may share folders with
/// processes that it cannot see.
bool sees_all_processes(const LeftoverPlaces& places);

/// The paths that dead processes of this user on this host left: lockstep's files in shared memory,
/// Open MPI's shared memory that no process maps, and its session folders.
///
/// A file counts only if its whole name is one of lockstep or Open MPI and it is a regular file of
/// this user without other names; a session folder only if all files in it are Open MPI's. Nothing
/// counts if sees_all_processes() is false. Links are never followed.
std::vector<std::string> find_leftovers(const LeftoverPlaces& places);

/// Removes the leftovers; returns the paths of those that were removed.
std::vector<std::string> remove_leftovers(const LeftoverPlaces& places);

}  // namespace lockstep::launcher
