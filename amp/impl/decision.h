#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/host_device.h>
#include <lockstep/amp/impl/scaler_state.h>
#include <lockstep/amp/impl/schedule_formula.h>
#include <lockstep/amp/impl/step_state.h>

#include <cmath>
#include <cstdint>

namespace lockstep::amp {

/// What measuring adds to, one bucket after another.
struct MeasureTotals {
  double sum_squares = 0.0;
  double not_finite = 0.0;  // buckets with an element that is not
};

LOCKSTEP_HOST_DEVICE void add_bucket(MeasureTotals& totals, double sum_squares) {
  const bool finite = sum_squares - sum_squares == 0.0;
  totals.sum_squares += sum_squares;
  totals.not_finite += finite ? 0.0 : 1.0;
}

/// The state of error feedback: plain data, in host or device memory. There are two arrays of
/// residuals. Array `kept` holds the rounding errors of the last update that was made; the other
/// array receives those of the present window. An update swaps the two, a skip does not: no copy,
/// and no question to the host.
struct FeedbackState {
  int32_t kept = 0;
  float scale = 1.0F;   // the loss scale of the kept ones, their unit
  float factor = 1.0F;  // brings them to the unit of the coming window: its loss scale / `scale`
};

/// The two arrays, fp32, of the same span of a bucket.
struct Residuals {
  float* arrays[2];

  LOCKSTEP_HOST_DEVICE const float* kept(const FeedbackState& state) const {
    return state.kept == 0 ? arrays[0] : arrays[1];
  }
  LOCKSTEP_HOST_DEVICE float* next(const FeedbackState& state) const {
    return state.kept == 0 ? arrays[1] : arrays[0];
  }
};

/// After the update of a window whose gradients had the loss scale `scale`.
LOCKSTEP_HOST_DEVICE void advance(FeedbackState& state, bool skipped, float scale,
                                  float next_scale) {
  if (!skipped) {
    state.kept = 1 - state.kept;
    state.scale = scale;
  }
  state.factor = next_scale / state.scale;
}

/// What updates are decided by, as plain data for kernels.
struct DecisionRule {
  ScalerRule scaler;
  double clip_norm;  // infinity: nothing is clipped
  float clip_value;
  ScheduleFormula schedule;
};

/// One update, from what was measured to what became of it: plain data in host or device memory,
/// the same bits on every rank but for `loss`.
struct Decision {
  // Inputs of decide(), in this order. All-reduced: totals.not_finite, failed and loss_sum.
  MeasureTotals totals;   // of the reduced gradients
  double failed = 0.0;    // ranks that failed in this window
  double loss_sum = 0.0;  // over the micro-batches of the window, for reports alone
  double loss = 0.0;      // of this rank, until the first update: to see whether it is NaN

  // With several losses: how often one overflowed in its own gradients, before their sum travelled.
  double loss_overflow = 0.0;
  // From the host, before the window, where the schedule is a function.
  PlannedFactors planned;

  // What decide() makes of it.
  StepState step;
  bool skipped = false;
  float scale = 1.0F;      // the loss scale of these gradients
  double grad_norm = 0.0;  // of the unscaled gradient before clipping; NaN if skipped

  // After conclude().
  int64_t updates = 0;  // real ones so far
  ScalerState scaler;
  FeedbackState feedback;
};

/// Step 4 of the order, from the flags of all ranks: whether to update, and with which factors.
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

/// Step 6, after the update: counts it, moves the scale and what is fed back. If a rank failed,
/// neither the count nor the scale moves. If one of several losses overflowed by itself, only the
/// scale of that loss moves.
LOCKSTEP_HOST_DEVICE void conclude(Decision& decision, ScalerState& scaler,
                                   const DecisionRule& rule) {
  if (!(decision.failed > 0.0)) {
    decision.updates += decision.skipped ? 0 : 1;
    ScalerRule moved = rule.scaler;
    moved.dynamic = moved.dynamic && !(decision.loss_overflow > 0.0);
    advance(scaler, moved, decision.skipped);
  }
  decision.scaler = scaler;
  advance(decision.feedback, decision.skipped, decision.scale, scaler.scale);
}

}  // namespace lockstep::amp
