#pragma once

#include <CLI/App.hpp>

#include <string>
#include <vector>

namespace lockstep::launcher {

/// Says that `command` has no such option, and which one was probably meant.
std::string no_such_option(const CLI::App& command, const std::string& option);

/// Prints why `app` did not take the command line `typed`, with the command and the option as they
/// were typed; or the help, if that was asked for. Returns the exit code.
int end_of_parsing(const CLI::App& app, const CLI::ParseError& error,
                   const std::vector<std::string>& typed);

}  // namespace lockstep::launcher
