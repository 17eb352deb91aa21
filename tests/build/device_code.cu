#include <lockstep/amp/adam_update.h>
#include <lockstep/amp/adamw_update.h>
#include <lockstep/amp/scaler_state.h>
#include <lockstep/amp/sgd_update.h>
#include <lockstep/amp/step_state.h>

namespace amp = lockstep::amp;

__global__ void adamw(amp::AdamWUpdate update, amp::StepState state, float gradient,
                      float* values) {
  const auto prepared = update.prepare(state);
  values[0] = prepared(values[0], gradient, values[1], values[2]);
}

__global__ void adam(amp::AdamUpdate update, amp::StepState state, float gradient, float* values) {
  const auto prepared = update.prepare(state);
  values[0] = prepared(values[0], gradient, values[1], values[2]);
}

__global__ void sgd(amp::SgdUpdate update, amp::StepState state, float gradient, float* values) {
  const auto prepared = update.prepare(state);
  values[0] = prepared(values[0], gradient);
}

__global__ void momentum(amp::MomentumUpdate update, amp::StepState state, float gradient,
                         float* values) {
  const auto prepared = update.prepare(state);
  values[0] = prepared(values[0], gradient, values[1]);
}

__global__ void scaler(amp::ScalerState* state, amp::ScalerRule rule, const float* overflow) {
  amp::advance(*state, rule, *overflow != 0);
}
