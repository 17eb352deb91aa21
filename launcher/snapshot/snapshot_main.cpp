// lockstep inspect and export: a program of its own, since the launcher does not link LibTorch.
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <CLI/CLI.hpp>

#include <exception>
#include <iostream>
#include <string>

#include "snapshot/inspect_snapshot.h"
#include "start/refusal.h"

namespace lockstep::launcher {
namespace {

constexpr int exit_differs = 1;

int main(int argc, char** argv) {
  std::string path;
  std::string other;
  Export wanted;
  bool tensors = false;

  CLI::App app("Looks into snapshots.", "lockstep");
  app.require_subcommand(1);
  CLI::App* inspect = app.add_subcommand("inspect", "Print what is in a snapshot and verify it");
  inspect->add_option("snapshot", path, "A snapshot, RUN/latest, or the folder of a run")
      ->required();
  inspect->add_option("other", other,
                      "Print only in what this one differs; exit code 1 if it does");
  inspect->add_flag("--tensors", tensors, "Also print each tensor");
  CLI::App* write = app.add_subcommand("export", "Write a snapshot's weights to one file");
  write
      ->add_option("snapshot", wanted.folder,
                   "A snapshot; of the folder of a run, its newest whole one")
      ->required();
  write->add_option("file", wanted.file, "The safetensors file to write")->required();
  CLI::Option* section =
      write->add_option("--section", wanted.section, "The section to write; default: model");
  write
      ->add_flag("--averaged", wanted.averaged,
                 "Moving averages in place of the weights and buffers that have one")
      ->excludes(section);
  write->add_flag("--best", wanted.best,
                  "Of the folder of a run, the snapshot with the best metric");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return end_of_parsing(app, error, {argv + 1, argv + argc});
  }
  if (write->parsed()) {
    export_snapshot(wanted, std::cout);
  } else if (other.empty()) {
    inspect_snapshot(path, tensors, std::cout);
  } else if (!compare_snapshots(path, other, std::cout)) {
    return exit_differs;
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::launcher

int main(int argc, char** argv) {
  try {
    return lockstep::launcher::main(argc, argv);
  } catch (const lockstep::Error& error) {
    std::cerr << "lockstep: " << error.what() << "\n";
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << "lockstep: " << error.what() << "\n";
    return static_cast<int>(lockstep::ExitCode::snapshot);
  }
}
