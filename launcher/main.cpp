#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "child_process.h"
#include "exec_rank.h"
#include "exit_codes.h"
#include "machine.h"
#include "run_job.h"

namespace lockstep::launcher {
namespace {

void add_run_options(CLI::App& run, RunOptions& options) {
  run.add_option("-n,--ranks", options.ranks,
                 "Number of ranks; default: one for each GPU, or else for each physical core")
      ->check(CLI::Range(1, 1 << 20));
  run.add_option("--hostfile", options.hostfile, "File that names the hosts, as mpirun takes it")
      ->check(CLI::ExistingFile);
  run.add_option("--host", options.hosts, "Hosts, as mpirun takes them: a:4,b:4");
  run.add_option("--log-dir", options.log_dir, "Also write what rank R prints to DIR/rank-R.log");
  run.add_flag("--dry-run", options.dry_run, "Print the exact command and do not run it");
  run.add_flag("!--no-tag", options.tag, "Do not put [rank] before each line");
  run.add_option("--bind", options.bind, "Bind each rank to a core, or to none (default)")
      ->check(CLI::IsMember({"none", "core"}));
  run.add_option("--grace", options.grace_seconds,
                 "Seconds that ranks get to save and stop after SIGTERM or SIGINT; default 30")
      ->check(CLI::Range(0, 86400));
  run.add_option("--mpirun", options.mpirun, "The mpirun to use; default: the one in PATH");
  run.add_option("--mpi-arg", options.mpi_arguments,
                 "One more argument for mpirun, may be repeated: --mpi-arg=--display-map")
      ->allow_extra_args(false);
}

/// Becomes a program that needs LibTorch; it lies beside this one.
int exec_tool(const std::string& name, char** argv) {
  const std::string own = own_program();
  const std::string tool = own.substr(0, own.find_last_of('/') + 1) + name;
  execv(tool.c_str(), argv);
  std::cerr << "lockstep: cannot start " << tool << ": " << std::strerror(errno) << "\n";
  return exit_environment;
}

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "inspect" || command == "export") {
    return exec_tool("lockstep-snapshot", argv);
  }
  if (command == "doctor") {
    return exec_tool("lockstep-doctor", argv);
  }
  block_signals();
  const std::vector<std::string> all(argv + 1, argv + argc);
  const auto dashes = std::find(all.begin(), all.end(), "--");
  std::vector<std::string> own(all.begin(), dashes);
  RunOptions options;
  if (dashes != all.end()) {
    options.program.assign(dashes + 1, all.end());
  }
  if (own == std::vector<std::string>{"exec-rank"} && !options.program.empty()) {
    return exec_rank(options.program);
  }

  CLI::App app("Trains LibTorch models on many ranks.", "lockstep");
  app.set_version_flag("--version", "lockstep " LOCKSTEP_VERSION);
  app.require_subcommand(1);
  CLI::App* run = app.add_subcommand(
      "run", "Start a program on many ranks: lockstep run [options] [--] program [arguments]");
  add_run_options(*run, options);
  run->prefix_command();  // what follows the options is the program, with or without --
  app.add_subcommand("inspect", "Print what is in a snapshot, verify it, compare two");
  app.add_subcommand("export", "Write a snapshot's weights to one safetensors file");
  app.add_subcommand("doctor", "Check this machine, its devices and this build, within a minute");
  try {
    std::reverse(own.begin(), own.end());  // the order that CLI11 takes
    app.parse(own);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : exit_usage;
  }
  std::vector<std::string> rest = run->remaining();
  if (!rest.empty() && rest.front().front() == '-') {
    std::cerr << "lockstep: run has no option " << rest.front() << "; see lockstep run --help\n";
    return exit_usage;
  }
  if (!rest.empty() && dashes != all.end()) {
    rest.emplace_back("--");  // the program's own
  }
  options.program.insert(options.program.begin(), rest.begin(), rest.end());
  if (options.program.empty()) {
    std::cerr << "lockstep: no program to run; expected: lockstep run [options] -- program "
                 "[arguments]\n";
    return exit_usage;
  }
  return run_job(options);
}

}  // namespace
}  // namespace lockstep::launcher

int main(int argc, char** argv) {
  try {
    return lockstep::launcher::main(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "lockstep: " << error.what() << "\n";
    return lockstep::launcher::exit_environment;
  }
}
