#pragma once

#include <lockstep/collectives/error.h>
#include <lockstep/runtime/best_snapshot.h>
#include <lockstep/runtime/evaluate.h>
#include <lockstep/runtime/loader.h>
#include <lockstep/runtime/progress.h>
#include <lockstep/runtime/run_log.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/trainer.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "result_file.h"

/// How long a program trains, and what it saves.
struct RunOptions {
  std::string run;  // folder of snapshots, log and result
  bool resume = false;
  int64_t epochs = 10;
  int64_t save_every = 200;  // updates

  lockstep::SnapshotOptions snapshots(bool lower_is_better = true) const {
    return lockstep::SnapshotOptions().folder(run).keep(
        lockstep::KeepOptions().last(1).best(1).lower_is_better(lower_is_better));
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

/// Trains until `options.epochs` epochs are complete, and goes on where a snapshot stopped if it
/// resumes. Shows progress, writes the log, saves, and leaves when the program is asked to stop.
/// `step(batch)` makes one update and returns its report. `validate()` runs after each epoch and
/// returns an Evaluation, whose first value is the metric of the epoch's snapshot. Returns the
/// seconds that the last epoch took, without validation; 0 if all epochs were complete before.
template <typename Dataset, typename Step, typename Validate>
double train_epochs(lockstep::Trainer& trainer, lockstep::Loader<Dataset>& loader,
                    const RunOptions& options, const Step& step, const Validate& validate) {
  const bool is_main = trainer.runtime().is_main();
  int64_t validated = 0;  // epochs
  trainer.state("validated", validated);
  if (options.resume) {
    trainer.resume();
  }
  trainer.stop_on_signals();
  lockstep::RunLog log(trainer, options.run);
  log.watch(loader);
  double seconds = 0.0;
  for (int64_t epoch = loader.epoch(); epoch < options.epochs; ++epoch) {
    const std::string label = "epoch " + std::to_string(epoch + 1);
    lockstep::Progress progress(label, loader.batches_per_epoch(), is_main);
    const Stopwatch watch;
    for (auto& batch : loader) {
      const lockstep::StepReport report = step(batch);
      log.step(report);
      const int64_t next = loader.position().batch;
      const bool last = next == 0;
      progress.show(last ? loader.batches_per_epoch() : next, [&] {
        return lockstep::Progress::Values{{"loss", report.loss()}, {"lr", report.learning_rate()}};
      });
      if (!last && trainer.stop_requested()) {
        trainer.save_and_leave();
      }
      if (!last && report.micro_batch() % options.save_every == 0) {
        trainer.save();
      }
    }
    if (validated == epoch) {  // a run that goes on may have done this
      seconds = watch.seconds();
      const lockstep::Evaluation found = validate();
      validated = epoch + 1;
      for (const auto& [name, value] : found.values) {
        log.log("validation/" + name, value);
      }
      log.flush();
      trainer.save(found.values.at(0).second);
      if (is_main) {
        std::cout << label << ": " << found.text() << std::endl;
      }
    }
    if (trainer.stop_requested()) {
      trainer.save_and_leave();
    }
  }
  return seconds;
}
