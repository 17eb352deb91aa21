#pragma once

#include <lockstep/collectives/check.h>
#include <lockstep/runtime/loader.h>
#include <lockstep/runtime/step_report.h>
#include <lockstep/runtime/trainer.h>
#include <torch/arg.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The rates that find_learning_rate() tries. Ranks: the same on every rank.
struct LearningRateSearch {
  /// First and last rate; those between grow by the same factor. Requires: 0 < lowest < highest.
  TORCH_ARG(double, lowest) = 1e-8;
  TORCH_ARG(double, highest) = 1.0;
  /// Number of rates, one update each. Requires: >= 2.
  TORCH_ARG(int64_t, updates) = 100;
  /// Weight of the earlier losses in the smoothed loss. Requires: 0 <= smoothing < 1.
  TORCH_ARG(double, smoothing) = 0.98;
  /// The search ends where the smoothed loss exceeds the lowest one by this factor: where it is
  /// above lowest + (stop_factor - 1) * |lowest|. Requires: > 1. Infinity: never.
  TORCH_ARG(double, stop_factor) = 4.0;
  /// The suggestion leaves out this many rates at the beginning and at the end. Requires: >= 0.
  TORCH_ARG(int64_t, skip_first) = 10;
  TORCH_ARG(int64_t, skip_last) = 1;

 public:
  /// Throws an Error that names the option with a value out of range.
  void validate() const;
};

/// The result of find_learning_rate(). The same on every rank.
struct LearningRateCurve {
  std::vector<double> rates;
  /// The loss of the update with each rate: StepReport::mean_loss().
  std::vector<double> losses;
  /// The exponential average of the losses, corrected for its start at 0.
  std::vector<double> smoothed;
  /// The rate at which the smoothed loss falls fastest from one rate to the next; the scale of
  /// rates is logarithmic. Empty if the smoothed loss falls nowhere.
  std::optional<double> suggestion;
  /// Number of rates that skip_first and skip_last leave for the suggestion, which needs two.
  int64_t candidates = 0;

  /// "suggested learning rate 0.0123, of 87 rates from 1e-08 to 0.093"
  std::string text() const;
};

namespace detail {

/// Takes the report of a step; returns whether the search goes on.
using TakeReport = std::function<bool(const StepReport&)>;

/// All of find_learning_rate() that does not depend on types. `run` makes steps until TakeReport
/// returns false. `rewind` is called at the end, also where an exception leaves.
LearningRateCurve search_learning_rate(Trainer& trainer, const LearningRateSearch& search,
                                       const std::function<void(const TakeReport&)>& run,
                                       const std::function<void()>& rewind);

}  // namespace detail

/// Trains with learning rates that grow from update to update, and suggests the one at which the
/// loss falls fastest (Smith, "Cyclical learning rates", 2017; the search of fastai and Lightning).
///
///   const auto curve = lockstep::find_learning_rate(trainer, loader, [&](auto& batch) {
///     return trainer.step([&] { return loss_of(trainer.to_device(batch)); });
///   });
///   trainer.set_learning_rate(curve.suggestion.value_or(1e-3));
///
/// `step(batch)` makes one step of the Trainer and returns its report. Every group of the optimizer
/// gets the rate of the update, without the schedule's factor. A skipped update with a finite loss
/// does not count: its rate is tried again, at most 100 times in a search. The search ends early
/// where the loss is not finite or exceeds stop_factor, also that of a skipped update, where the
/// schedule's factor becomes 0 (the run would be complete), and if a rank asks to stop.
///
/// Afterwards the Trainer is as before, bit for bit: weights, masters, moments, averages, buffers,
/// loss scale, counters, learning rates, random numbers, variables of
/// Trainer::state(), and the position of `loader`. Also if an exception leaves, unless a peer is
/// lost; a rank that fails alone outside of a step leaves its peers waiting in theirs. The state is
/// kept in memory of the host meanwhile. The search saves no snapshots.
///
/// Call it between windows and outside of a loop over `loader`, best before the first update: a
/// model that has learned has another curve. Ranks: every rank makes the same call. Threads: one.
/// Throws the same Error on every rank for an option out of range, for a loader without batches,
/// with TrainerOptions::digest_log or local_updates, and where the schedule's factor is 0 from the
/// beginning (a run that is complete).
template <typename Dataset, typename Step>
[[nodiscard]] LearningRateCurve find_learning_rate(Trainer& trainer, Loader<Dataset>& loader,
                                                   const Step& step,
                                                   const LearningRateSearch& search = {}) {
  const LoaderPlace::Mark mark = loader.mark();
  const auto run = [&](const detail::TakeReport& take) {
    loader.seek(mark.next);  // a loop of its own, also where that of a resumed run was complete
    for (bool goes_on = true; goes_on;) {
      bool is_empty = true;
      for (auto& batch : loader) {
        is_empty = false;
        goes_on = take(step(batch));
        if (!goes_on) {
          break;
        }
      }
      LOCKSTEP_CHECK(!is_empty, "find_learning_rate: the loader has no batch");
    }
  };
  return detail::search_learning_rate(trainer, search, run, [&] { loader.return_to(mark); });
}

}  // namespace lockstep
