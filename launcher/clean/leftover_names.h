#pragma once

#include <optional>
#include <string>

namespace lockstep::launcher {

// The names that lockstep and Open MPI give to what runs leave behind.

/// The process in a name that a rank gives to a file in shared memory; nothing for another name.
/// collectives/host/shared_memory.cpp and collectives/core/roll_call.cpp make these names.
std::optional<int> process_in_file(const std::string& name);

/// "HOST.UID", as Open MPI names its files.
std::string host_and_user();

/// Whether Open MPI gives this name to its shared memory.
bool is_segment(const std::string& name);

/// The process in the name of a session folder.
std::optional<int> process_in_session(const std::string& name);

/// A job's or a rank's folder in a session folder, or one in which PMIx keeps what ranks publish.
bool is_folder_of_session(const std::string& name);

bool is_file_of_session(const std::string& name);

/// A whole name that is a number.
std::optional<int> number_in(const std::string& name);

}  // namespace lockstep::launcher
