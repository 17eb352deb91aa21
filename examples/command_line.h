#pragma once

#include <lockstep/collectives/error.h>

#include <CLI/CLI.hpp>
#include <optional>

/// The exit code if the program is to end here: after --help, or for arguments that are wrong.
inline std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(lockstep::ExitCode::usage);
  }
}
