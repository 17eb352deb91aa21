#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/impl/option_list.h>
#include <lockstep/runtime/evaluate.h>
#include <lockstep/runtime/loop/impl/run_log_options.h>
#include <lockstep/runtime/loop/impl/save_timer.h>
#include <lockstep/runtime/run_log.h>
#include <lockstep/runtime/step_report.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace lockstep {

class EarlyStopping;
class Progress;
class Trainer;
struct EpochOptions;

}  // namespace lockstep

namespace lockstep::detail {

/// Options that are set, or not.
template <>
inline std::string text_of(EarlyStopping* const& stopping) {
  return stopping != nullptr ? "set" : "unset";
}
template <>
inline std::string text_of(const std::function<void(const StepReport&, RunLog&)>& hook) {
  return hook ? "set" : "unset";
}
template <>
inline std::string text_of(const std::function<void(int64_t, const Evaluation&, RunLog&)>& hook) {
  return hook ? "set" : "unset";
}

LOCKSTEP_OPTION_LIST(EpochOptions) {
  visit("folder", options.folder());
  visit("epochs", options.epochs(), ">= 1");
  visit("updates", options.updates(), ">= 0");
  visit("early_stopping", options.early_stopping());
  visit("save_every", options.save_every(), ">= 0");
  visit("save_every_minutes", options.save_every_minutes(), ">= 0");
  visit("validate_every", options.validate_every(), ">= 0");
  visit("metric", options.metric());
  visit("resume", options.resume());
  visit("log", options.log());
  visit("on_step", options.on_step());
  visit("on_epoch", options.on_epoch());
}

/// What train_epochs() does around steps: log, progress, validation, saves. Ranks: the same calls.
class EpochLoop {
 public:
  EpochLoop(Trainer& trainer, const EpochOptions& options);
  ~EpochLoop();
  EpochLoop(const EpochLoop&) = delete;
  EpochLoop& operator=(const EpochLoop&) = delete;

  RunLog& log() { return log_; }
  /// `batches`: the number of the epoch. `left`: those of them that are to come.
  void begin(int64_t epoch, int64_t batches, int64_t left);
  void after_step(const StepReport& report, const std::function<Evaluation()>& validate);
  /// Validates, calls the hook of the epoch and saves, unless after_step() has just done so.
  void end(const std::function<Evaluation()>& validate);
  /// True once the run has had its updates, or its EarlyStopping has stopped: no more steps.
  bool is_over() const { return is_over_; }

 private:
  void show_progress();
  void stop_clock();
  void save(std::optional<MetricValue> metric = std::nullopt);
  /// Validates, then saves with the metric. `update`: that of a validation within an epoch.
  void validate_and_save(const std::function<Evaluation()>& validate,
                         std::optional<int64_t> update = std::nullopt);

  Trainer& trainer_;
  std::unique_ptr<const EpochOptions> options_;
  RunLog log_;
  std::unique_ptr<Progress> progress_;
  SaveTimer save_timer_;
  int64_t window_;  // micro-batches of an update
  int64_t epoch_ = 0;
  int64_t batches_ = 0;
  int64_t left_ = 0;     // of batches_, those to come
  int64_t steps_ = 0;    // of the epoch, in this process
  int64_t windows_ = 0;  // closed windows of the epoch
  bool is_window_open_ = false;
  bool is_over_ = false;
  bool is_validated_ = false;  // since the last step
  int64_t updates_ = 0;        // so far, as far as they were read
  int64_t most_updates_ = 0;   // so far, if none was skipped
  double began_ = 0.0;         // start of the steps since the last validation
  double seconds_ = 0.0;       // of the epoch's steps before began_
};

}  // namespace lockstep::detail
