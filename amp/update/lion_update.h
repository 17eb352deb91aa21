#pragma once

#include <lockstep/amp/host_device.h>
#include <lockstep/amp/step_state.h>
#include <lockstep/amp/update/double_arithmetic.h>

#include <array>

namespace lockstep::amp {

/// Lion: the sign of an interpolation of moment and gradient, with decoupled weight decay.
struct LionUpdate {
  static constexpr int kMoments = 1;
  static constexpr std::array<const char*, kMoments> kMomentNames = {"exp_avg"};
  double lr, beta1, beta2, weight_decay;

  struct Prepared {
    GradientScale scaled;
    float keep, lr, beta1, rest1, beta2, rest2;
    LOCKSTEP_HOST_DEVICE float operator()(float weight, float gradient, float& m) const {
      const float g = scaled(gradient);
      const float direction = beta1 * m + rest1 * g;
      m = beta2 * m + rest2 * g;
      const float move = direction > 0.0F ? lr : (direction < 0.0F ? -lr : 0.0F);
      return weight * keep - move;
    }
  };

  LOCKSTEP_HOST_DEVICE Prepared prepare(const StepState& state) const {
    const double rate = state.rate(lr);
    Prepared p;
    p.scaled = state.gradient_scale();
    p.keep = static_cast<float>(1.0 - rate * weight_decay);
    p.lr = static_cast<float>(rate);
    p.beta1 = static_cast<float>(beta1);
    p.rest1 = static_cast<float>(1.0 - beta1);
    p.beta2 = static_cast<float>(beta2);
    p.rest2 = static_cast<float>(1.0 - beta2);
    return p;
  }

  struct Double {
    static constexpr bool kTakesRoots = false;
    DoubleScale scaled;
    double keep, lr, beta1, rest1, beta2, rest2;
    double operator()(double weight, double gradient, double& m) const {
      const double g = scaled(gradient);
      const double direction = std::fma(rest1, g, m * beta1);
      m = std::fma(rest2, g, m * beta2);
      return weight * keep - (direction > 0.0 ? lr : (direction < 0.0 ? -lr : 0.0));
    }
  };

  Double prepare_double(const StepState& state, const DoubleScale& scale) const {
    const double rate = state.rate(lr);
    return {scale, 1.0 - rate * weight_decay, rate, beta1, 1.0 - beta1, beta2, 1.0 - beta2};
  }
};

}  // namespace lockstep::amp
