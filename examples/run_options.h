#pragma once

#include <lockstep/checkpointing/snapshot/snapshot_options.h>
#include <lockstep/runtime/train_epochs.h>

#include <CLI/CLI.hpp>
#include <string>

/// How long a program trains, and what it saves.
struct RunOptions {
  std::string run;  // folder of snapshots, log and result
  bool resume = false;
  int64_t epochs = 10;
  int64_t save_every = 200;  // updates

  lockstep::SnapshotOptions snapshots() const {
    return lockstep::SnapshotOptions().folder(run).keep(lockstep::KeepOptions().last(1));
  }
  lockstep::EpochOptions training() const {
    return lockstep::EpochOptions()
        .folder(run)
        .epochs(epochs)
        .save_every(save_every)
        .resume(resume);
  }
};

inline void add_options(CLI::App& app, RunOptions& options) {
  app.add_option("--run", options.run, "Folder of snapshots, log and result")
      ->capture_default_str();
  app.add_flag("--resume", options.resume, "Go on from the newest snapshot in --run, if any");
  app.add_option("--epochs", options.epochs)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--save-every", options.save_every, "Updates between snapshots")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}
