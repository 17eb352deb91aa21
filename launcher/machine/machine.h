#pragma once

#include <string>

namespace lockstep::launcher {

/// The name of this host, by gethostname.
std::string host_name();
/// Cores (not hardware threads) that this process may use.
int physical_cores();
/// The file that execvp would run; empty: there is none.
std::string find_program(const std::string& name);
/// The path of this program.
std::string own_program();

}  // namespace lockstep::launcher
