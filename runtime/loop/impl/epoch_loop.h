#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/impl/option_list.h>
#include <lockstep/runtime/evaluate.h>
#include <lockstep/runtime/run_log.h>
#include <lockstep/runtime/step_report.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace lockstep {

class Progress;
class Trainer;
struct EpochOptions;

}  // namespace lockstep

namespace lockstep::detail {

LOCKSTEP_OPTION_LIST(EpochOptions) {
  visit("folder", options.folder());
  visit("epochs", options.epochs(), ">= 1");
  visit("save_every", options.save_every(), ">= 0");
  visit("validate_every", options.validate_every(), ">= 0");
  visit("resume", options.resume());
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
  void end(const std::function<Evaluation()>& validate);

 private:
  void show_progress();
  void stop_clock();
  /// Validates, then saves with the metric. `when`: text for the printed line.
  void validate_and_save(const std::function<Evaluation()>& validate, const std::string& when);

  Trainer& trainer_;
  std::unique_ptr<const EpochOptions> options_;
  RunLog log_;
  std::unique_ptr<Progress> progress_;
  int64_t window_;  // micro-batches of an update
  int64_t epoch_ = 0;
  int64_t batches_ = 0;
  int64_t left_ = 0;     // of batches_, those to come
  int64_t steps_ = 0;    // of the epoch, in this process
  int64_t windows_ = 0;  // closed windows of the epoch
  bool is_window_open_ = false;
  int64_t updates_ = 0;   // so far
  double began_ = 0.0;    // start of the steps since the last validation
  double seconds_ = 0.0;  // of the epoch's steps before began_
};

}  // namespace lockstep::detail
