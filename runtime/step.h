#pragma once

#include <lockstep/amp/autocast.h>
#include <lockstep/amp/loss_scaler.h>
#include <lockstep/amp/weight_casts.h>
#include <lockstep/runtime/agreement.h>
#include <lockstep/runtime/consensus.h>
#include <lockstep/runtime/decisions.h>
#include <lockstep/runtime/loss.h>
#include <lockstep/runtime/loss_scales.h>
#include <lockstep/runtime/model_watch.h>
#include <lockstep/runtime/non_finite_diagnosis.h>
#include <lockstep/runtime/reducer.h>
#include <lockstep/runtime/replica_check.h>
#include <lockstep/runtime/step_report.h>
#include <lockstep/runtime/stop_signals.h>
#include <lockstep/runtime/trainable.h>
#include <lockstep/runtime/trainer_options.h>
#include <lockstep/runtime/updater.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace lockstep {

/// What the step works on; owned by the Trainer.
struct StepParts {
  TrainerOptions options;
  c10::Device device = c10::Device(c10::kCPU);
  HostActs host_acts = HostActs::at_once;
  std::vector<ModelTensor> buffers;
  Trainable trainable;
  Communicator communicator;
  Agreement agreement;
  amp::LossScaler scaler;
  Reducer& reducer;
  std::unique_ptr<Updater>& updater;
  std::unique_ptr<ModelWatch>& watch;
  std::unique_ptr<ReplicaCheck>& replicas;
  NonFiniteDiagnosis diagnosis;
  std::function<std::string()> out_of_memory_advice;  // of this rank
};

/// The one order of a step (DESIGN §4), for the k micro-batches of a window and their update. It is
/// the same wherever the model is: what is decided lies in the memory of the model's device
/// (Decisions), and the host acts on it at once or, where that would make it wait, a window later.
/// Ranks: the same calls on every rank; a rank that fails still takes part in the window's
/// collectives, so that all ranks throw.
class Step {
 public:
  explicit Step(StepParts parts);
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  /// Before the first micro-batch of a window: acts on what the ranks said in the last one.
  /// Collective. Nothing happens in the middle of a window.
  void begin_window();
  /// One micro-batch: closure under autocast (if asked), scaled backward.
  void micro_batch(const std::function<Loss()>& closure, bool under_autocast);
  /// A micro-batch for which this rank has no data.
  void empty_micro_batch();
  bool window_full() const { return count_ == parts_.options.accumulate(); }
  int64_t micro_batches_in_window() const { return count_; }
  /// Consensus and update; then a new window.
  StepReport close_window();
  /// True once a window's device work is always the same: the kind of loss is agreed on and an
  /// update was made. Throws Error where that cannot be: for a Loss::sum.
  bool can_be_recorded() const;
  /// What a window of one micro-batch gives the device to do, the update included; the host neither
  /// reads nor decides, so that it can be recorded. Requires: can_be_recorded(), and a `loss` like
  /// loss_like(), which takes this window's.
  void run_window(const std::function<Loss()>& closure, const at::Tensor& loss);
  at::Tensor loss_like() const;
  /// What the host does each time that work was given to the device.
  StepReport close_recorded_window(const at::Tensor& loss);
  /// What is known between updates.
  StepReport report_open_window() const;
  void abandon();
  /// Forgets the window that is open. Local: after an exception that all ranks got, when nothing
  /// that was sent is still on its way.
  void end_window();
  /// Acts on the word that is on its way, if one is. Collective.
  void settle();

  /// Between windows: the parameters that the reducer has now.
  void adopt(const Trainable& trainable) { parts_.trainable = trainable; }

  /// Says in the words of this rank whether its share of a pending snapshot is written.
  void tell_saved(bool saved) { saved_here_ = saved; }
  /// Whether every rank said so in the last word; true once a word.
  bool take_saved_everywhere() { return std::exchange(saved_everywhere_, false); }
  void request_stop() noexcept { stop_here_.store(true, std::memory_order_relaxed); }
  void stop_on_signals(const std::vector<int>& signals) { stop_signals_.emplace(signals); }
  bool stop_requested() const { return stop_everywhere_; }
  /// Real updates so far. Waits for the device.
  int64_t updates() const { return decisions_.latest()->read().updates; }
  /// Asks all ranks to diagnose the next overflow after the coming update.
  void diagnose_next_overflow() { diagnose_here_ = true; }
  const NonFiniteDiagnosis& diagnosis() const { return parts_.diagnosis; }
  /// The loss's; of several losses, that of the unit in which their gradients travel.
  amp::LossScaler& scaler() { return parts_.scaler; }
  LossScales& loss_scales() { return loss_scales_; }
  /// Throws Error where there is no such loss.
  const amp::LossScaler& scaler_of(int64_t loss) const;
  /// The precision's, until what this returns is destroyed.
  amp::Autocast autocast() const;
  /// Of this rank.
  std::optional<Error> change_of_model() const { return parts_.watch->departure(); }
  /// What is fed back, bucket by bucket, fp32; empty without error feedback. Waits for the device.
  std::vector<at::Tensor> residuals() const;
  /// Counters that outlive a window: updates (which the schedule follows), the kind of the losses
  /// and the unit of the residuals. The scaler's state is to be loaded before, residuals after.
  void visit_state(StateArchive& archive);

 private:
  template <typename Body>
  auto attempt(const Body& body) -> decltype(body());
  Loss forward(const std::function<Loss()>& closure, bool under_autocast);
  void backward(const Loss& loss);
  void note_loss(const Loss& loss);
  /// As far as the host may know; the same on every rank.
  bool before_first_update() const { return decisions_.known().updates == 0; }
  void prepare_backward();
  void require_number(const std::function<void()>& replay);
  void replay(const std::function<Loss()>& closure);
  Loss under_autocast(const std::function<Loss()>& closure) const;
  void warn_of_skips();
  void require_budget();
  void plan_learning_rate();
  void take_edited_rates();
  /// Of what this rank's next update is made with.
  double digest_of_rates();
  /// Throws the same Error on every rank unless the ranks told each other the same.
  void require_same_rates(const Word& all);
  void arm_diagnosis();
  /// Whether all ranks exchange words before the window's last backward: for the global
  /// denominator, in the first window for the kind of the losses, and before the first update for
  /// losses that are NaN.
  bool agrees_first() const {
    return parts_.options.uneven_data() || kind_is_sum_.value_or(true) || before_first_update();
  }
  void agree_on_weights();
  double packing_factor() const;
  bool nothing_counted() const { return weighted() && weights_everywhere_->weight == 0; }
  void measure();
  std::optional<Word> share(bool failed);
  void heed(const Word& all);
  void update();
  void move_everything();
  void conclude_on_host();
  [[noreturn]] void fail(const std::exception_ptr& error);
  void tell_of_failure();
  [[noreturn]] void fail_elsewhere();
  /// After an update was decided.
  void conclude_diagnosis();
  Word word();
  bool weighted() const { return kind_is_sum_.value_or(false) || parts_.options.uneven_data(); }

  StepParts parts_;
  LossScales loss_scales_;
  Decisions decisions_;
  Consensus consensus_;
  std::atomic<bool> stop_here_{false};
  std::optional<StopSignals> stop_signals_;
  bool stop_everywhere_ = false;
  bool diagnose_here_ = false;
  bool diagnose_everywhere_ = false;
  bool saved_here_ = false;
  bool saved_everywhere_ = false;
  int64_t windows_ = 0;             // whose update was decided
  std::vector<double> told_rates_;  // learning rates by group, and the schedule's factors
  int64_t micro_batches_ = 0;
  int64_t warned_of_ = 0;            // skips in a row
  at::Tensor last_loss_;             // fp64, 0-dimensional, on the device
  std::optional<bool> kind_is_sum_;  // agreed by all ranks in the first window, then fixed

  // the window
  int64_t count_ = 0;
  int64_t with_data_ = 0;
  double weight_ = 0.0;
  bool nan_loss_ = false;  // of this rank, before the first update
  std::optional<bool> is_sum_;
  std::optional<Word> weights_everywhere_;
  double compute_seconds_ = 0.0;
  amp::WeightSet weights_;
  std::optional<amp::WeightCastScope> weight_casts_;  // weights are cast once for the window
};

}  // namespace lockstep
