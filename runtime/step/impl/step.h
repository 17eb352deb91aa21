#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/ops/empty_like.h>
#include <lockstep/amp/loss_scaler.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/closure_calls.h>
#include <lockstep/runtime/loss.h>
#include <lockstep/runtime/step/impl/consensus.h>
#include <lockstep/runtime/step/impl/decisions.h>
#include <lockstep/runtime/step/impl/forward_backward.h>
#include <lockstep/runtime/step/impl/leaves.h>
#include <lockstep/runtime/step/impl/loss_weights.h>
#include <lockstep/runtime/step/impl/measures.h>
#include <lockstep/runtime/step/impl/non_finite_diagnosis.h>
#include <lockstep/runtime/step/impl/skip_watch.h>
#include <lockstep/runtime/step/impl/training_storage.h>
#include <lockstep/runtime/step_report.h>
#include <lockstep/runtime/storage/impl/buffer_sync.h>
#include <lockstep/runtime/trainer_options.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace lockstep::detail {

/// The parts that a Step works on.
struct StepParts {
  TrainerOptions options;
  c10::Device device = c10::Device(c10::kCPU);
  HostActs host_acts = HostActs::at_once;
  std::vector<ModelTensor> buffers;
  Communicator communicator;  // of the model's device
  Agreement agreement;        // of the hosts
  amp::LossScaler scaler;
  TrainingStorage& storage;
  NonFiniteDiagnosis diagnosis;
  uint64_t seed = 0;  // of the run
};

/// The one order of a step (docs/architecture.md): k micro-batches, which make a window, and their
/// update. The order is the same on the host, on a device and in a CUDA graph. Only the time
/// differs at which the host acts on a decision: at once if the decision is in host memory, else at
/// the beginning of the next window, so that the host never waits for the device (HostActs).
/// Ranks: the same calls on every rank. A rank that fails still takes part in the collectives of
/// the window, so that no rank hangs and all ranks throw.
class Step {
 public:
  explicit Step(StepParts parts);
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  /// Call before each micro-batch. Before the first one of a window: acts on the votes of the last
  /// window. Collective. Does nothing in the middle of a window.
  void begin_window();
  /// Runs one micro-batch: the closure, under autocast if asked, and the scaled backward.
  void micro_batch(const std::function<Loss()>& closure, bool under_autocast);
  /// Counts a micro-batch for which this rank has no data.
  void empty_micro_batch();
  /// True while the closure of a micro-batch runs, also where it runs again for a diagnosis.
  bool is_in_closure() const { return forward_backward_.is_in_closure(); }
  bool window_full() const { return count_ == parts_.options.accumulate(); }
  int64_t micro_batches_in_window() const { return count_; }
  /// Runs the update of a full window and ends the window. `votes`: the votes of this rank that do
  /// not come from the step (Votes::phase_done).
  StepReport close_window(const Votes& votes = {});
  /// The report of a micro-batch that does not close its window.
  StepReport report_open_window() const;

  /// True once the device's work is the same in every window: an update was made and no exchange
  /// is needed before backward. Throws Error for a Loss::sum, which can never be captured.
  bool can_be_captured() const;
  /// Captures the device's work of a window of one micro-batch, update included: the host neither
  /// reads nor decides. The graph writes its loss to `loss`, a tensor like loss_like().
  /// Requires: can_be_captured().
  void capture_window(const std::function<Loss()>& closure, const at::Tensor& loss);
  at::Tensor loss_like() const { return at::empty_like(forward_backward_.last_loss()); }
  /// Runs a captured window: `launch` launches the graph, then the host does its part.
  StepReport launch_window(const std::function<void()>& launch, const at::Tensor& loss,
                           const Votes& votes);

  void abandon();
  /// If this rank has left a step because a peer failed: meets the others, ends the window and
  /// throws the Error of all ranks; CommunicationError where ranks cannot meet. Else nothing.
  void follow_peers();
  /// Resets the state of the window. Local; no collective may be in flight.
  void end_window();
  /// Waits for the votes in flight, if any, and acts on them. Collective.
  void settle();
  /// Votes in flight, requests to stop and to diagnose.
  Consensus& consensus() { return consensus_; }
  const Consensus& consensus() const { return consensus_; }
  /// True on every rank after any was asked to stop; only between windows, where ranks can save.
  bool stop_requested() const { return consensus_.stop_requested() && count_ == 0; }
  const Leaves& leaves() const { return leaves_; }
  /// False: a ScheduleFunction is not called, and the learning rates are those of the groups. A
  /// formula stays part of the update's rule.
  void follow_schedule(bool follow) { follows_schedule_ = follow; }
  /// With reproducible: seeds the generators for what the loop draws before the next window. Local.
  void seed_leaves() { leaves_.end_window(decisions_.known()); }
  /// Updates that were made so far. Waits for the device.
  int64_t updates() const { return decisions_.latest()->read().updates; }
  const NonFiniteDiagnosis& diagnosis() const { return parts_.diagnosis; }
  /// The scaler of the loss; with several losses, the common scale in which their gradients travel.
  amp::LossScaler& scaler() { return parts_.scaler; }
  LossScales& loss_scales() { return forward_backward_.scales(); }
  /// The scaler of one loss. Throws Error if there is no such loss.
  const amp::LossScaler& scaler_of(int64_t loss) const { return forward_backward_.scaler_of(loss); }
  /// TrainingStorage::change_of_model() of this rank.
  std::optional<Error> change_of_model() const { return parts_.storage.change_of_model(); }
  /// Autocast as the precision wants it, until the returned region is destroyed.
  amp::Autocast autocast() const { return forward_backward_.autocast(); }
  /// Visits counters that outlive a window, the kind of the losses and learning rates. Load the
  /// scaler's state before this.
  void visit_state(StateArchive& archive);

 private:
  /// What reduce_and_update() runs of the order.
  enum class UpdateMode {
    whole,     // all of it
    captured,  // the device's work, while a CUDA graph is captured
    launched,  // the host's work, after a CUDA graph was launched
    failed,    // the collectives of the window, on a rank with an error, where ranks cannot leave
               // them together; if its peers act one window late, also their update, which is
               // skipped
  };
  void reduce_and_update(UpdateMode mode, const Votes& votes);
  void require_complete(UpdateMode mode);
  void measure(UpdateMode mode);
  void vote(UpdateMode mode, const Votes& votes);
  void apply();
  StepReport report_closed_window();

  template <typename Body>
  auto fail_on_error(const Body& body) -> decltype(body());
  template <typename Body>
  void end_window_on_error(const Body& body);
  Loss forward(const std::function<Loss()>& closure, bool under_autocast);
  void require_number(const std::function<void()>& replay);
  void plan_learning_rate();
  void prepare_backward();
  void exchange_votes();
  Votes own_votes(Votes votes);
  bool decides_at_once() const { return parts_.host_acts == HostActs::at_once; }
  /// As far as the host knows; the same on every rank.
  bool before_first_update() const { return decisions_.known().updates == 0; }
  /// True if ranks exchange votes before the last backward of the window: see LossWeights, and
  /// before the first update for a loss that is NaN.
  bool exchanges_first() const { return loss_weights_.need_exchange() || before_first_update(); }
  [[noreturn]] void fail(const std::exception_ptr& error);
  [[noreturn]] void fail_with_others();
  [[noreturn]] void meet(const std::exception_ptr& error);
  void tell_of_failure();
  void end_round();

  StepParts parts_;
  ForwardBackward forward_backward_;
  LossWeights loss_weights_;
  Decisions decisions_;
  Measures measures_;
  Consensus consensus_;
  BufferSync buffer_sync_;
  Leaves leaves_;
  SkipWatch skip_watch_;
  /// How ranks leave a window that has failed: together, or with UpdateMode::failed. None: on one
  /// rank.
  std::optional<ClosureCalls> closure_calls_;
  bool leave_together_ = false;
  uint64_t round_ = 0;         // of closure_calls_, when this Step knew it last
  int64_t windows_ = 0;        // skipped ones included; a resumed run begins at its updates
  int64_t micro_batches_ = 0;  // of closed windows
  bool follows_schedule_ = true;

  // the window
  int64_t count_ = 0;
  bool nan_loss_ = false;           // this rank's loss was NaN before the first update
  std::optional<Votes> exchanged_;  // votes exchanged before the last backward
  double compute_seconds_ = 0.0;
  double communication_seconds_ = 0.0;
  double update_seconds_ = 0.0;
};

}  // namespace lockstep::detail
