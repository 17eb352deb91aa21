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

/// Notes that this mpirun, a child of this process, is the launcher's, so that its session is
/// removed if it is killed; `job` (in hex): that its job has shared memory. Does nothing if the
/// note cannot be made. A note goes with the last of what it is about.
void note_job(const LeftoverPlaces& places, int mpirun, const std::string& job = "");

/// The paths that dead processes of this user on this host left: lockstep's files in shared memory,
/// and of jobs that a note names Open MPI's shared memory that no process maps, and session
/// folders.
///
/// A file counts only if its whole name is one of lockstep or Open MPI and it is a regular file of
/// this user without other names; a session folder only if all files in it are Open MPI's. What a
/// process of another PID namespace made is left. Links are never followed.
std::vector<std::string> find_leftovers(const LeftoverPlaces& places);

/// Removes the leftovers; returns the paths of those that were removed.
std::vector<std::string> remove_leftovers(const LeftoverPlaces& places);

}  // namespace lockstep::launcher
