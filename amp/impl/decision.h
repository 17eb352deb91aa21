#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/host_device.h>
#include <lockstep/amp/impl/scaler_state.h>
#include <lockstep/amp/impl/schedule_formula.h>
#include <lockstep/amp/impl/step_state.h>

#include <cmath>
#include <cstdint>

namespace c10 {
struct Device;
}

namespace lockstep::amp {

/// Divides a flat array for its sum of squares: each part of `each` elements is summed alone, then
/// the sums are added in order. So the bits depend on the parts and not on which rank measures
/// which part. The last parts may be short or empty.
struct MeasuredParts {
  int64_t each = 0;  // a multiple of 8; 0: the whole array
  int count = 1;
};

/// Totals of the measured buckets.
struct MeasureTotals {
  double sum_squares = 0.0;
  double not_finite = 0.0;  // buckets with an element that is not finite
};

LOCKSTEP_HOST_DEVICE void add_bucket(MeasureTotals& totals, double sum_squares) {
  const bool finite = sum_squares - sum_squares == 0.0;
  totals.sum_squares += sum_squares;
  totals.not_finite += finite ? 0.0 : 1.0;
}

/// The options of a decision, as plain data for kernels.
struct DecisionRule {
  ScalerRule scaler;
  double clip_norm;  // infinity: no clipping
  float clip_value;
  ScheduleFormula schedule;
};

/// The inputs and the result of the decision on one update: plain data in host or device memory.
/// The same bits on every rank, except for `loss`; with local_updates also except for what follows
/// from the gradients, which are each rank's own: totals.sum_squares, grad_norm, gradient_factor.
struct Decision {
  // Inputs of decide(), in this order; failed and loss_sum are all-reduced. Without shards so is
  // totals.not_finite, which then counts a bucket once for each rank.
  MeasureTotals totals;   // of the reduced gradients
  double failed = 0.0;    // ranks that failed in this window
  double loss_sum = 0.0;  // over the micro-batches of the window; for reports only
  double loss = 0.0;      // of this rank, until the first update, to detect NaN

  // With several losses: how often one overflowed in its own gradients, before the reduction.
  double loss_overflow = 0.0;
  // Written by the host before the window if the schedule is a function.
  PlannedFactors planned;

  // Outputs of decide().
  StepState step;          // coefficients of the update
  bool skipped = false;    // an inf or NaN, or a rank failed
  float scale = 1.0F;      // the loss scale of these gradients
  double grad_norm = 0.0;  // of the unscaled gradient before clipping; NaN if skipped

  // Outputs of conclude().
  int64_t updates = 0;  // made so far; skipped ones do not count
  ScalerState scaler;
};

/// No. 4 in the order of a step (docs/architecture.md): decides from the flags of all ranks whether
/// to update, and computes the factors.
LOCKSTEP_HOST_DEVICE void decide(Decision& decision, const ScalerState& scaler,
                                 const DecisionRule& rule) {
  decision.skipped =
      !(decision.totals.not_finite == 0.0) || decision.failed > 0.0 || decision.loss_overflow > 0.0;
  decision.scale = scaler.scale;
  const double scale = scaler.scale;
  const double norm = sqrt(decision.totals.sum_squares) / scale;
  const double ratio = rule.clip_norm / (norm + 1e-6);
  decision.grad_norm = decision.skipped ? static_cast<double>(NAN) : norm;
  decision.step.gradient_factor = gradient_factor(scale, ratio < 1.0 ? ratio : 1.0);
  decision.step.gradient_limit = rule.clip_value;
  decision.step.learning_rate_factor = rule.schedule.kind == ScheduleFormula::Kind::function
                                           ? decision.planned.factor(decision.updates)
                                           : rule.schedule.factor(decision.updates);
  decision.step.update = decision.updates + 1;
  decision.step.skip = decision.skipped;
}

/// No. 6, after the update: advances the count and the loss scale. If a rank failed, count and
/// scale stay. If one of several losses overflowed by itself, only the scale of that loss changes.
LOCKSTEP_HOST_DEVICE void conclude(Decision& decision, ScalerState& scaler,
                                   const DecisionRule& rule) {
  if (!(decision.failed > 0.0)) {
    decision.updates += decision.skipped ? 0 : 1;
    ScalerRule moved = rule.scaler;
    moved.dynamic = moved.dynamic && !(decision.loss_overflow > 0.0);
    advance(scaler, moved, decision.skipped);
  }
  decision.scaler = scaler;
}

/// decide() and conclude() in the memory of the data: at once for the host; for a device on the
/// current stream, and the host does not wait.
void decide_in_place(Decision* decision, const ScalerState* scaler, const DecisionRule& rule,
                     c10::Device device);
void conclude_in_place(Decision* decision, ScalerState* scaler, const DecisionRule& rule,
                       c10::Device device);

}  // namespace lockstep::amp
