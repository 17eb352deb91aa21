#pragma once

#include <lockstep/collectives/error.h>

#include <CLI/CLI.hpp>
#include <optional>

/// Reads the arguments and, with --config, a TOML file with the same options ("batch-size = 32");
/// arguments win. Returns the exit code if the program is to end here: after --help, or for options
/// that are wrong or unknown.
inline std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  app.set_config("--config", "", "TOML file with any of these options");
  app.allow_config_extras(CLI::config_extras_mode::error);
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(lockstep::ExitCode::usage);
  }
}
