#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/loss_scaler.h>
#include <lockstep/runtime/loss.h>
#include <lockstep/runtime/step/impl/decisions.h>
#include <lockstep/runtime/step/impl/reducer.h>

#include <vector>

namespace lockstep::detail {

/// The loss scales of a step with several losses (TrainerOptions::losses): each loss has one, runs
/// a backward of its own, and what that leaves is measured before it is added to the others. The
/// sum travels in a unit of its own, which the step's scaler keeps; so a loss that overflows lowers
/// its own scale alone, and a sum that overflows on the wire lowers the unit alone. With one loss
/// there is nothing here, and the step's scaler is that loss's.
/// All is done in the memory of the device; the host never waits but for state(). Threads: one.
class LossScales {
 public:
  /// `unit`: the step's scaler.
  LossScales(int64_t losses, const amp::LossScalerOptions& options, c10::Device device,
             const amp::LossScaler& unit);

  bool several() const { return !scalers_.empty(); }
  /// Throws Error unless `loss` has as many parts as there are losses.
  void check(const Loss& loss) const;
  /// The backward of each part at its own scale; `reducer` takes the sum in the unit.
  void backward(const Loss& loss, Reducer& reducer);
  /// The sum of the parts that has, at the scale of the unit, what backward() computes.
  at::Tensor sum_in_unit(const Loss& loss) const;
  /// After the last backward of a window: which losses overflowed on any rank. Collective.
  void share(Communicator& devices, const Decisions& decisions);
  /// After the update: moves each scale by its own overflow, but for a window in which a rank
  /// failed.
  void conclude(const Decisions& decisions);
  /// A new window: nothing measured.
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
