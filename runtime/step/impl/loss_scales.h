#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/loss_scaler.h>
#include <lockstep/runtime/loss.h>
#include <lockstep/runtime/step/impl/decisions.h>
#include <lockstep/runtime/step/impl/reducer.h>

#include <vector>

namespace lockstep::detail {

/// The loss scales of a step with several losses (TrainerOptions::losses). Each loss has a scale
/// and a backward of its own, whose gradients are measured before they are added to those of the
/// others. The sum travels at a common scale, the unit, which the step's scaler keeps. So a loss
/// that overflows lowers only its own scale, and a sum that overflows on the wire only the unit.
/// With one loss this object is empty, and the step's scaler is that of the loss. All work is in
/// device memory; the host waits only for LossScaler::state(). Threads: one.
class LossScales {
 public:
  /// `unit`: the step's scaler.
  LossScales(int64_t losses, const amp::LossScalerOptions& options, c10::Device device,
             const amp::LossScaler& unit);

  bool several() const { return !scalers_.empty(); }
  /// Throws Error unless `loss` has as many parts as there are losses.
  void check(const Loss& loss) const;
  /// Runs the backward of each part at its own scale; `reducer` takes the sum in the unit.
  void backward(const Loss& loss, Reducer& reducer);
  /// The sum of the parts; scaled by the unit, each part has its own scale, as in backward().
  at::Tensor sum_in_unit(const Loss& loss) const;
  /// After a window's last backward: shares which losses overflowed on any rank. Collective.
  void share(Communicator& devices, const Decisions& decisions);
  /// After the update: changes each scale by its own overflow, unless a rank failed in the window.
  void conclude(const Decisions& decisions);
  /// Starts a window: clears the measurements.
  void begin();

  std::vector<amp::LossScaler>& scalers() { return scalers_; }
  const std::vector<amp::LossScaler>& scalers() const { return scalers_; }

 private:
  at::Tensor to_unit(size_t loss) const;
  at::Tensor measured(size_t loss, const at::Tensor& gradient);

  const amp::LossScaler& unit_;
  std::vector<amp::LossScaler> scalers_;
  at::Tensor totals_;     // fp64 {losses, 2}, as amp::measure_into() has them, of this rank
  at::Tensor overflows_;  // fp64 {losses}, of all ranks
};

}  // namespace lockstep::detail
