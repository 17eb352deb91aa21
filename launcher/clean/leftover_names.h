#pragma once

#include <lockstep/collectives/impl/process_mark.h>

#include <optional>
#include <string>
#include <vector>

namespace lockstep::launcher {

// The names of files that runs of lockstep and Open MPI may leave behind. lockstep's own carry the
// mark of the process that made them.

/// The mark in the name of a rank's file in shared memory; empty for other names.
/// collectives/host/shared_memory.cpp and collectives/core/roll_call.cpp make these names.
std::optional<detail::ProcessMark> mark_in_file(const std::string& name);

/// The name of an empty file beside what it is about: the process, an mpirun of the launcher, has
/// an Open MPI session here (`job` is empty), or its job, a number in hex, has Open MPI's shared
/// memory here. `host`: of whose name Open MPI made its own names; processes of one machine may
/// have several, in namespaces.
struct JobNote {
  detail::ProcessMark mpirun;
  std::string job;
  std::string host;

  std::string name() const;
};

std::optional<JobNote> note_in(const std::string& name);

/// "HOST.UID", a part of Open MPI's file names.
std::string host_and_user();

/// The job, in hex, in the name of Open MPI's shared memory; empty for other names.
std::string job_in_segment(const std::string& name);

/// Whether this is the number of a job as Open MPI's names have it: 32 bits, as "%x" prints them.
bool is_job(const std::string& text);

/// A folder in the one for temporary files. `parent`: in which folder of this user; empty: in none.
struct SessionName {
  std::string parent;
  std::string name;
};

/// The names that the session folder of an mpirun may have, by the version of Open MPI.
std::vector<SessionName> sessions_of(int process);

/// The mpirun of a session folder of Open MPI 5, whose name has no parent.
std::optional<int> mpirun_of_session(const std::string& name);

/// Whether this is the folder of a job, a rank, or PMIx's published data in a session folder.
bool is_folder_of_session(const std::string& name);

bool is_file_of_session(const std::string& name);

/// The number, if the whole name is one.
std::optional<int> number_in(const std::string& name);

}  // namespace lockstep::launcher
