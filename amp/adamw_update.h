#pragma once

#include <lockstep/amp/adam_update.h>

namespace lockstep::amp {

/// AdamW: weight decay shrinks the weight, apart from the gradient.
struct AdamWUpdate {
  static constexpr int kMoments = 2;
  static constexpr bool kSecondMoment = true;
  static constexpr std::array<const char*, kMoments> kMomentNames = {"exp_avg", "exp_avg_sq"};
  AdamHyperparameters hyperparameters;

  struct Prepared {
    AdamStep step;
    float keep;
    LOCKSTEP_HOST_DEVICE float operator()(float weight, float gradient, float& m, float& v) const {
      return step(weight * keep, step.scaled(gradient), m, v);
    }
  };

  LOCKSTEP_HOST_DEVICE Prepared prepare(const StepState& state) const {
    const double lr = state.rate(hyperparameters.lr);
    return {AdamStep::prepare(hyperparameters, state),
            static_cast<float>(1.0 - lr * hyperparameters.weight_decay)};
  }
};

}  // namespace lockstep::amp
