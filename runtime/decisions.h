#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <lockstep/amp/decision.h>
#include <lockstep/amp/loss_scaler.h>
#include <lockstep/amp/schedule.h>

#include <memory>
#include <optional>

namespace lockstep {

/// A Decision as it was when the copy was made. Any thread.
class DecisionCopy {
 public:
  /// Returns at once on the host; waits for the copy where it comes from a device.
  const amp::Decision& read() const;

 private:
  friend class Decisions;
  at::Tensor bytes_;  // host memory
  std::optional<c10::Event> copied_;
};

/// When the host acts on what was decided.
enum class HostActs {
  at_once,          // the decision is made in host memory
  one_window_late,  // it is made on a device: the host never waits for the window just enqueued
};

/// The Decision of the window at hand, in memory of the model's device, and copies of those before.
/// From begin() to conclude() it is the device's work alone, which could be captured and replayed.
/// Nothing here makes the host wait but reading a copy and step_on_host().
/// Threads: one. Ranks: local.
class Decisions {
 public:
  Decisions(c10::Device device, HostActs acts, const amp::DecisionRule& rule,
            amp::LossScaler& scaler);

  HostActs host_acts() const { return acts_; }

  /// For a schedule that is a function: calls it for the window to come. Throws Error where that
  /// fails.
  void plan(const Schedule& schedule);
  /// What it gave.
  const amp::PlannedFactors& planned() const { return planned_; }
  /// A new window: nothing measured, no rank failed.
  void begin();
  /// For amp::measure_into().
  const at::Tensor& totals() const { return totals_; }
  /// Two fp64 elements, sums over ranks once shared: overflows, failures.
  const at::Tensor& flags() const { return flags_; }
  void mark_failed();
  void note_loss(const at::Tensor& loss) { loss_.copy_(loss); }
  /// Several losses: how often one overflowed, on all ranks.
  void note_loss_overflow(const at::Tensor& overflows) const { loss_overflow_.copy_(overflows); }
  /// One fp64 element on the device: ranks that failed in this window.
  at::Tensor failed() const { return flags_.select(0, 1); }
  void decide();
  /// For update kernels, in the device's memory.
  const amp::StepState* step() const;
  /// The same for the host; waits for the device.
  amp::StepState step_on_host() const;
  /// One byte in the device's memory: 1 where nothing moves.
  const at::Tensor& skipped() const { return skipped_; }
  /// What the windows' packing reads of error feedback, in the device's memory.
  const amp::FeedbackState* feedback() const;
  /// After the update: counts, and moves the scale and what is fed back.
  void conclude();
  /// Copies what was concluded, for reports and for the host.
  void publish();

  /// The last published one.
  const std::shared_ptr<const DecisionCopy>& latest() const { return latest_; }
  /// The newest that the host may act on; the same one on every rank.
  const amp::Decision& known() const;

  /// Goes on from a saved state: `updates` real ones, residuals of that loss scale in the first of
  /// their two arrays, and the scaler's state as it is.
  void restart(int64_t updates, float residual_scale = 1.0F);

 private:
  amp::Decision* place() const;
  std::shared_ptr<const DecisionCopy> copy() const;

  c10::Device device_;
  HostActs acts_;
  amp::DecisionRule rule_;
  amp::LossScaler& scaler_;
  at::Tensor bytes_;
  at::Tensor totals_, flags_, loss_, loss_overflow_, measured_, planned_bytes_,
      skipped_;  // views of bytes_
  amp::PlannedFactors planned_;
  std::shared_ptr<const DecisionCopy> latest_;
  std::shared_ptr<const DecisionCopy> earlier_;
};

}  // namespace lockstep
