#pragma once

#include <optional>
#include <string>

namespace lockstep::launcher {

// The names of files that runs of lockstep and Open MPI may leave behind.

/// The process number in the name of a rank's file in shared memory; empty for other names.
/// collectives/host/shared_memory.cpp and collectives/core/roll_call.cpp make these names.
std::optional<int> process_in_file(const std::string& name);

/// "HOST.UID", a part of Open MPI's file names.
std::string host_and_user();

/// Whether this is a name of Open MPI's shared memory.
bool is_segment(const std::string& name);

/// The process number in the name of a session folder.
std::optional<int> process_in_session(const std::string& name);

/// Whether this is the folder of a job, a rank, or PMIx's published data in a session folder.
bool is_folder_of_session(const std::string& name);

bool is_file_of_session(const std::string& name);

/// The number, if the whole name is one.
std::optional<int> number_in(const std::string& name);

}  // namespace lockstep::launcher
