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

/// The objects that a Step works on; owned by the Trainer.
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
  std::function<std::string()> out_of_memory_advice;  // for this rank
};

/// Runs a window: k micro-batches and their update, in the one fixed order. The order is the same
/// on the host and on a device. The decision whether to update lies in the memory of the model's
/// device (Decisions). The host acts on the decision at once if it is in host memory. On a device
/// that would make the host wait, so the host acts one window later.
/// Ranks: every rank makes the same calls. A rank that fails still takes part in the window's
/// collectives, so that all ranks throw.
class Step {
 public:
  explicit Step(StepParts parts);
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  /// Call before the first micro-batch of a window: acts on the votes of the last window.
  /// Collective. Does nothing in the middle of a window.
  void begin_window();
  /// Runs one micro-batch: the closure (under autocast if asked), then the scaled backward.
  void micro_batch(const std::function<Loss()>& closure, bool under_autocast);
  /// Runs a micro-batch for which this rank has no data.
  void empty_micro_batch();
  bool window_full() const { return count_ == parts_.options.accumulate(); }
  int64_t micro_batches_in_window() const { return count_; }
  /// Runs consensus and update, and starts a new window.
  StepReport close_window();
  /// True once the device work of every window is the same, so that it can be captured: the ranks
  /// have agreed on the kind of the losses, and an update was made. Throws Error for a Loss::sum,
  /// which cannot be captured.
  bool can_be_recorded() const;
  /// Enqueues the device work of a window of one micro-batch, including the update. The host
  /// neither reads the device nor decides anything, so the work can be captured. Requires:
  /// can_be_recorded(). `loss`: a tensor like loss_like(); receives the loss of this window.
  void run_window(const std::function<Loss()>& closure, const at::Tensor& loss);
  at::Tensor loss_like() const;
  /// The host's part of a window whose captured work was launched. Call it after each launch.
  StepReport close_recorded_window(const at::Tensor& loss);
  /// The report of a window that is not complete.
  StepReport report_open_window() const;
  void abandon();
  /// Drops the open window. Local. For use after an exception that all ranks threw, when no
  /// collective is in flight.
  void end_window();
  /// Completes the votes in flight, if any, and acts on them. Collective.
  void settle();

  /// Adopts the parameters that the reducer has now. Call it between windows.
  void adopt(const Trainable& trainable) { parts_.trainable = trainable; }

  /// Sets this rank's vote on whether its share of a pending snapshot is written.
  void tell_saved(bool saved) { saved_here_ = saved; }
  /// True if every rank voted so in the last window. Returns true only once per vote.
  bool take_saved_everywhere() { return std::exchange(saved_everywhere_, false); }
  void request_stop() noexcept { stop_here_.store(true, std::memory_order_relaxed); }
  void stop_on_signals(const std::vector<int>& signals) { stop_signals_.emplace(signals); }
  bool stop_requested() const { return stop_everywhere_; }
  /// Number of real updates so far. Waits for the device.
  int64_t updates() const { return decisions_.latest()->read().updates; }
  /// Asks all ranks to diagnose the next overflow after the coming update.
  void diagnose_next_overflow() { diagnose_here_ = true; }
  const NonFiniteDiagnosis& diagnosis() const { return parts_.diagnosis; }
  /// The scaler of the loss. With several losses: the scaler of the sum of their gradients.
  amp::LossScaler& scaler() { return parts_.scaler; }
  LossScales& loss_scales() { return loss_scales_; }
  /// The scaler of one loss. Throws Error for a loss that does not exist.
  const amp::LossScaler& scaler_of(int64_t loss) const;
  /// The precision's autocast state, until the returned guard is destroyed.
  amp::Autocast autocast() const;
  /// The Error for a model whose parameters changed on this rank, if they did.
  std::optional<Error> change_of_model() const { return parts_.watch->departure(); }
  /// The residuals of error feedback, fp32, one tensor per bucket; empty without error feedback.
  /// Waits for the device.
  std::vector<at::Tensor> residuals() const;
  /// Visits counters that outlive a window: number of updates (which the schedule follows), kind of
  /// the losses, loss scale of the residuals. Load the scaler's state before this call, and
  /// residuals after it.
  void visit_state(StateArchive& archive);

 private:
  template <typename Body>
  auto attempt(const Body& body) -> decltype(body());
  Loss forward(const std::function<Loss()>& closure, bool under_autocast);
  void backward(const Loss& loss);
  void note_loss(const Loss& loss);
  /// As far as the host knows. The same value on every rank.
  bool before_first_update() const { return decisions_.known().updates == 0; }
  void prepare_backward();
  void require_number(const std::function<void()>& replay);
  void replay(const std::function<Loss()>& closure);
  Loss under_autocast(const std::function<Loss()>& closure) const;
  void warn_of_skips();
  void require_budget();
  void plan_learning_rate();
  void take_edited_rates();
  /// A digest of the learning rates of this rank's next update.
  double digest_of_rates();
  /// Throws the same Error on every rank if the ranks voted with different digests of learning
  /// rates.
  void require_same_rates(const Word& all);
  void arm_diagnosis();
  /// True if all ranks exchange votes before the last backward of the window. Needed for the global
  /// denominator, for the kind of the losses in the first window, and for NaN losses before the
  /// first update.
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
  /// Call after the update is decided.
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
  int64_t windows_ = 0;             // windows whose update was decided
  std::vector<double> told_rates_;  // rates by group and schedule factors of the last vote
  int64_t micro_batches_ = 0;
  int64_t warned_of_ = 0;            // skips in a row
  at::Tensor last_loss_;             // fp64, 0-dimensional, on the device
  std::optional<bool> kind_is_sum_;  // agreed by all ranks in the first window, then fixed

  // State of the open window.
  int64_t count_ = 0;
  int64_t with_data_ = 0;
  double weight_ = 0.0;
  bool nan_loss_ = false;  // on this rank, before the first update
  std::optional<bool> is_sum_;
  std::optional<Word> weights_everywhere_;
  double compute_seconds_ = 0.0;
  amp::WeightSet weights_;
  std::optional<amp::WeightCastScope> weight_casts_;  // casts weights once per window
};

}  // namespace lockstep
