#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <lockstep/amp/impl/decision.h>
#include <lockstep/amp/loss_scaler.h>
#include <lockstep/amp/schedule.h>
#include <lockstep/runtime/data/impl/state_archive.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

namespace lockstep::detail {

/// A copy of a Decision, as it was when the copy was made. Threads: any.
class DecisionCopy {
 public:
  /// Returns the Decision. Does not wait if the copy was made on the host; waits for a copy from a
  /// device.
  const amp::Decision& read() const;

 private:
  friend class Decisions;
  at::Tensor bytes_;  // host memory
  std::optional<c10::Event> copied_;
  /// True once the event was waited for. During the capture of a CUDA graph nothing may wait, so an
  /// arrived copy is read without the event.
  mutable std::atomic<bool> arrived_{false};
};

/// When the host acts on a decision.
enum class HostActs {
  at_once,          // decisions are made in host memory
  one_window_late,  // made on a device: the host never waits for the window just enqueued
};

/// Holds the Decision of the current window in memory of the model's device, and copies of earlier
/// Decisions. From begin() to conclude() only the device works, so this part can be captured and
/// launched. Only reading a copy and step_on_host() make the host wait.
/// Threads: one. Ranks: local.
class Decisions {
 public:
  Decisions(c10::Device device, HostActs acts, const amp::DecisionRule& rule,
            amp::LossScaler& scaler);

  /// For a schedule that is a function: calls it for the coming window. Throws Error if that call
  /// fails.
  void plan(const Schedule& schedule);
  /// The factors from the last plan().
  const amp::PlannedFactors& planned() const { return planned_; }
  /// Starts a window: clears the measurements and the failure flag. `loss_sum`: of this rank, one
  /// fp64 element; undefined if it had no loss.
  void begin(const at::Tensor& loss_sum = {});
  /// Two fp64 elements, the memory of Decision::totals, for amp::measure_into().
  const at::Tensor& totals() const { return totals_; }
  /// Three fp64 elements: buckets not finite, as this rank sees them reduced (the second element of
  /// totals() in the same memory); failure of this rank; sum of its losses. After Measures::share()
  /// they are sums over all ranks, with shards only the last two.
  const at::Tensor& rank_sums() const { return rank_sums_; }
  /// Marks this rank as failed; its losses are unknown, so their sum becomes NaN.
  void mark_failed();
  /// Notes the loss of a micro-batch, before the first update. True if the host knows of a NaN: in
  /// this loss, or on a device in the last one of an earlier window.
  bool note_loss(const at::Tensor& loss);
  /// With several losses: notes how often a loss overflowed, on all ranks.
  void note_loss_overflow(const at::Tensor& overflows) const { loss_overflow_.copy_(overflows); }
  /// One fp64 element on the device: number of ranks that failed in this window.
  at::Tensor failed() const { return rank_sums_.select(0, 1); }
  void decide();
  /// The coefficients that update kernels read, in device memory.
  const amp::StepState* step() const;
  /// A host copy of them. Waits for the device.
  amp::StepState step_on_host() const;
  /// StepState::gradient_factor in fp64, for fp64 parameters. Waits for the device.
  double gradient_factor_on_host() const;
  /// One byte in device memory: 1 if the update is skipped.
  const at::Tensor& skipped() const { return skipped_; }
  /// Call after the update: counts it, and advances the loss scale.
  void conclude();
  /// Copies the concluded Decision, for reports and for the host.
  void publish();

  /// The last published Decision.
  const std::shared_ptr<const DecisionCopy>& latest() const { return latest_; }
  /// The newest Decision that the host may act on. The same one on every rank.
  const amp::Decision& known() const;

  /// Continues from a saved state with `updates` real updates. The scaler keeps its present state.
  void restart(int64_t updates);
  /// Visits the count of updates.
  void visit_state(StateArchive& archive);

 private:
  amp::Decision* place() const;
  std::shared_ptr<const DecisionCopy> copy() const;

  c10::Device device_;
  HostActs acts_;
  amp::DecisionRule rule_;
  amp::LossScaler& scaler_;
  at::Tensor bytes_;
  at::Tensor totals_, rank_sums_, loss_sum_, loss_, loss_overflow_, measured_, planned_bytes_,
      skipped_;  // views of bytes_
  amp::PlannedFactors planned_;
  std::shared_ptr<const DecisionCopy> latest_;
  std::shared_ptr<const DecisionCopy> earlier_;
};

}  // namespace lockstep::detail
