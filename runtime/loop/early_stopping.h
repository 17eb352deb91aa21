#pragma once

#include <lockstep/checkpointing/snapshot/metric_value.h>
#include <torch/arg.h>

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

class Trainer;

/// When an EarlyStopping stops. Ranks: the same on every rank.
struct EarlyStoppingOptions {
  /// Metrics without improvement in a row that are tolerated. Requires: >= 0.
  TORCH_ARG(int64_t, patience) = 3;
  /// A metric improves if it is better than the best one by more than this. Requires: >= 0.
  TORCH_ARG(double, min_delta) = 0.0;
  /// Whether the lower of two metrics is better. Unset: Metric::lower_is_better() for results of
  /// evaluate(), else the lower one.
  TORCH_ARG(std::optional<bool>, lower_is_better);
  /// Under which its state is in snapshots; a second EarlyStopping needs another name.
  TORCH_ARG(std::string, name) = "early_stopping";

 public:
  /// Throws an Error that names the option with a value out of range.
  void validate() const;
};

/// Ends a training run whose metric no longer improves.
///
///   lockstep::EarlyStopping stopping(trainer, lockstep::EarlyStoppingOptions().patience(3));
///   for (...) {
///     ...                                        // an epoch
///     const auto found = lockstep::evaluate(...);
///     const bool stop = stopping.update(found);  // before save(), so that the snapshot knows
///     trainer.save(found);
///     if (stop) break;
///   }
///
/// Snapshots hold its state (Trainer::state()), so a resumed run stops where the whole run would. A
/// resumed loop may report the metric of the saved epoch a second time: that repeat is ignored.
/// Ranks: local; every rank makes the same calls with the same metrics, such as those of
/// evaluate(). Threads: one. It must live as long as the Trainer saves and resumes.
class EarlyStopping {
 public:
  /// Throws Error for an option with a value out of range.
  explicit EarlyStopping(Trainer& trainer, EarlyStoppingOptions options = {});
  EarlyStopping(const EarlyStopping&) = delete;
  EarlyStopping& operator=(const EarlyStopping&) = delete;

  /// Takes a metric: the result of evaluate(), whose first value counts, or a number. Returns
  /// stops(). NaN is no improvement. Throws Error if EarlyStoppingOptions::lower_is_better
  /// contradicts the metric.
  [[nodiscard]] bool update(const MetricValue& metric);
  /// True if more than `patience` metrics in a row were no improvement.
  bool stops() const { return bad_ > options_.patience(); }
  /// True if the last metric was the best so far.
  bool improved() const { return bad_ == 0; }
  /// The best metric; infinite before the first one.
  double best() const { return best_; }

 private:
  const Trainer& trainer_;
  EarlyStoppingOptions options_;
  double best_;
  int64_t bad_ = 0;      // metrics without improvement in a row
  int64_t update_ = -1;  // of the Trainer, when the last metric came
  bool started_ = false;
};

}  // namespace lockstep
