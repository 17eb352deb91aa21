#pragma once

#include <lockstep/collectives/exit_code.h>
#include <lockstep/runtime/runtime.h>

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

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

/// A whole program: reads the options, for which there is an add_options(app, options), and calls
/// train(runtime, options) on every rank.
template <typename Options, typename Train>
int run_with_options(const std::string& about, int argc, char** argv, const Train& train) {
  Options options;
  CLI::App app(about);
  add_options(app, options);
  if (const auto code = parse(app, argc, argv)) {
    return *code;
  }
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) { train(runtime, options); });
}
