#pragma once

#include <string>

namespace lockstep::launcher {

/// Of this host, as gethostname gives it.
std::string host_name();
/// Cores (not hardware threads) that this process may use.
int physical_cores();
/// The file that execvp would run, or empty if there is none that can be executed.
std::string find_program(const std::string& name);
/// The file of this very program.
std::string own_program();

}  // namespace lockstep::launcher
