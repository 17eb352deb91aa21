#pragma once

#include <lockstep/collectives/check.h>
#include <lockstep/runtime/early_stopping.h>
#include <lockstep/runtime/evaluate.h>
#include <lockstep/runtime/loader.h>
#include <lockstep/runtime/run_log.h>
#include <lockstep/runtime/step_report.h>
#include <torch/arg.h>

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/runtime/loop/impl/epoch_loop.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep {

class Trainer;

/// How long train_epochs() trains, and what it saves. Ranks: the same on every rank.
struct EpochOptions {
  using Stopping = EarlyStopping*;
  using StepHook = std::function<void(const StepReport& report, RunLog& log)>;
  using EpochHook = std::function<void(int64_t epoch, const Evaluation& found, RunLog& log)>;

  /// The folder of the run: snapshots and log. Requires: not empty.
  TORCH_ARG(std::string, folder);
  /// Epochs of the whole run, those before a resume included. Requires: >= 1, and a loader whose
  /// LoaderOptions::epochs is 1.
  TORCH_ARG(int64_t, epochs) = 1;
  /// Ends the run after this many updates of the whole run, skipped ones not counted, if `epochs`
  /// do not end it earlier. The epoch that is cut short ends as any other, with a validation and a
  /// snapshot. 0: no limit. Requires: >= 0.
  TORCH_ARG(int64_t, updates) = 0;
  /// Ends the run when it stops(). train_epochs() gives it the metric of each validation, before
  /// the snapshot. Made with the same Trainer; it must live as long as that saves and resumes.
  /// Null: none.
  TORCH_ARG(Stopping, early_stopping) = nullptr;
  /// Also saves after this many updates. 0: only after each epoch. Requires: >= 0.
  TORCH_ARG(int64_t, save_every) = 0;
  /// Also saves at the end of an update if the last snapshot is at least this old, by the clock of
  /// rank 0. 0: none by time. Costs one small broadcast after each update. Requires: >= 0.
  TORCH_ARG(double, save_every_minutes) = 0.0;
  /// Also validates, and saves with the metric, after this many updates: for long epochs. 0: only
  /// after each epoch. Requires: >= 0.
  TORCH_ARG(int64_t, validate_every) = 0;
  /// Which value of the Evaluation is the metric of snapshots and of early_stopping, by its name.
  /// Empty: the first.
  TORCH_ARG(std::string, metric);
  /// True: goes on from the newest snapshot in `folder`, if there is one. False: the folder must
  /// have no snapshots, and SnapshotOptions::folder of the Trainer must name it. It must name no
  /// other folder in any case.
  TORCH_ARG(bool, resume) = true;
  /// What the RunLog in `folder` writes.
  TORCH_ARG(RunLogOptions, log) = {};
  /// Called after each step, so for each micro-batch: for values of one's own in the log.
  TORCH_ARG(StepHook, on_step) = nullptr;
  /// Called after the validation at the end of an epoch, and before its snapshot. `epoch` counts
  /// from 0.
  TORCH_ARG(EpochHook, on_epoch) = nullptr;

 public:
  /// Throws an Error that names the option with a value out of range.
  void validate() const;
};

/// The usual training run: epochs of steps, each followed by a validation and a snapshot with its
/// metric.
///
///   lockstep::train_epochs(
///       trainer, loader, lockstep::EpochOptions().folder("runs/first").epochs(10),
///       [&](auto& batch) { return trainer.step([&] { return loss_of(batch); }); },
///       [&] { return lockstep::evaluate(trainer, model, test_loader, lockstep::MeanLoss()); });
///   lockstep::load_best(trainer, "runs/first");
///
/// It resumes, if EpochOptions::resume is set and there is a snapshot: also in the middle of an
/// epoch. It ends, as a program that returns with exit code 0 should, after EpochOptions::epochs or
/// updates, or when EpochOptions::early_stopping stops; a run that has ended so and is started
/// again trains no more. For each batch it calls `step(batch)`, which returns the StepReport of
/// Trainer::step(); at the end of an epoch it drops micro-batches that make no whole update
/// (Trainer::abandon()), ends a round of LocalUpdates early (Trainer::finish_round()), calls
/// `validate()`, and saves with EpochOptions::metric of the Evaluation.
/// EpochOptions::validate_every does the same within an epoch. That metric also says whether the
/// lowest or the highest value is the best (Metric::lower_is_better). `validate` is the place for
/// Trainer::reduce_on_plateau() too. A run that resumes at the end of an epoch validates this epoch
/// once more; ReduceOnPlateau and EarlyStopping do not count its metric twice. Variables of the
/// program that `step` or `validate` changes are in the snapshots only if Trainer::state() adds
/// them. What must begin anew with each epoch, such as a hidden state, `step` resets if
/// Loader::begins_epoch(). Meanwhile it shows a Progress, writes a RunLog to the folder, with
/// epoch_seconds and the values of the Evaluation as validation/NAME, and prints these on rank 0.
/// It calls Trainer::stop_on_signals(). If a stop is requested, it saves and throws Error with
/// ExitCode::preempted (Trainer::save_and_leave()). Ranks: every rank calls it with the same
/// arguments, between windows. Threads: one. Throws Error that names an option with a value out of
/// range, Error for an epoch with fewer batches than TrainerOptions::accumulate, and what the calls
/// above throw.
template <typename Dataset, typename Step, typename Validate>
void train_epochs(Trainer& trainer, Loader<Dataset>& loader, const EpochOptions& options,
                  const Step& step, const Validate& validate) {
  LOCKSTEP_CHECK(loader.epochs_per_loop() == 1,
                 "train_epochs: the loader has LoaderOptions::epochs(", loader.epochs_per_loop(),
                 "); leave it out, since EpochOptions::epochs says how many");
  detail::EpochLoop loop(trainer, options);
  loop.log().watch(loader);
  for (int64_t epoch = loader.epoch(); epoch < options.epochs() && !loop.is_over(); ++epoch) {
    const bool is_begun = loader.position().epoch == epoch;
    loop.begin(epoch, loader.batches_per_epoch(), is_begun ? loader.batches_left() : 0);
    for (auto& batch : loader) {
      const StepReport report = step(batch);
      loop.after_step(report, validate);
      if (loop.is_over()) {
        break;
      }
    }
    loop.end(validate);
  }
}

}  // namespace lockstep
