#pragma once

#include <lockstep/amp/host_device.h>
#include <lockstep/amp/step_state.h>
#include <lockstep/amp/update/double_arithmetic.h>

#include <array>
#include <cmath>

namespace lockstep::amp {

/// The hyper-parameters of Adam, AdamW and LAMB.
struct AdamHyperparameters {
  double lr, beta1, beta2, eps, weight_decay;
};

/// The arithmetic of one element that all three share. Coefficients are computed in fp64 once per
/// span, elements in fp32.
struct AdamStep {
  GradientScale scaled;
  float beta1, rest1, beta2, rest2, step_size, root_correction, eps;

  LOCKSTEP_HOST_DEVICE static AdamStep prepare(const AdamHyperparameters& h,
                                               const StepState& state) {
    const double updates = static_cast<double>(state.update);
    const double lr = state.rate(h.lr);
    AdamStep step;
    step.scaled = state.gradient_scale();
    step.beta1 = static_cast<float>(h.beta1);
    step.rest1 = static_cast<float>(1.0 - h.beta1);
    step.beta2 = static_cast<float>(h.beta2);
    step.rest2 = static_cast<float>(1.0 - h.beta2);
    step.step_size = static_cast<float>(lr / (1.0 - std::pow(h.beta1, updates)));
    step.root_correction = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(h.beta2, updates)));
    step.eps = static_cast<float>(h.eps);
    return step;
  }

  LOCKSTEP_HOST_DEVICE float operator()(float weight, float gradient, float& m, float& v) const {
    m = beta1 * m + rest1 * gradient;
    v = beta2 * v + rest2 * (gradient * gradient);
    return weight - step_size * (m / (std::sqrt(v) * root_correction + eps));
  }
};

/// The arithmetic in fp64 that all three share.
struct DoubleAdamStep {
  static constexpr bool kTakesRoots = true;
  DoubleScale scaled;
  double rest1, beta2, rest2, correction1, root_correction, eps, step_size;
  double l2 = 0.0;    // Adam: this times the weight is added to the gradient
  double keep = 1.0;  // AdamW: multiplies the weight

  DoubleAdamStep(const AdamHyperparameters& h, const StepState& state, const DoubleScale& scale)
      : scaled(scale),
        rest1(1.0 - h.beta1),
        beta2(h.beta2),
        rest2(1.0 - h.beta2),
        correction1(1.0 - std::pow(h.beta1, static_cast<double>(state.update))),
        root_correction(std::pow(1.0 - std::pow(h.beta2, static_cast<double>(state.update)), 0.5)),
        eps(h.eps),
        step_size(-(state.rate(h.lr) / correction1)) {}

  double moments(double weight, double gradient, double& m, double& v) const {
    const double g = std::fma(l2, weight, scaled(gradient));
    m = lerp(m, g, rest1);
    v = std::fma(rest2 * g, g, v * beta2);
    return weight * keep;
  }
  double denominator(double root) const { return root / root_correction + eps; }
  double operator()(double weight, double root, double& m) const {
    return weight + step_size * m / denominator(root);
  }
};

/// AdamW (decoupled decay: the weight is multiplied by 1 - lr * weight_decay) and Adam
/// (weight_decay * weight is added to the gradient).
template <bool kDecoupledDecay>
struct AdamFamilyUpdate {
  static constexpr int kMoments = 2;
  static constexpr std::array<const char*, kMoments> kMomentNames = {"exp_avg", "exp_avg_sq"};
  AdamHyperparameters hyperparameters;

  struct Prepared {
    AdamStep step;
    float decay;  // decoupled: 1 - lr * weight_decay; else weight_decay
    LOCKSTEP_HOST_DEVICE float operator()(float weight, float gradient, float& m, float& v) const {
      if constexpr (kDecoupledDecay) {
        return step(weight * decay, step.scaled(gradient), m, v);
      } else {
        return step(weight, step.scaled(gradient) + decay * weight, m, v);
      }
    }
  };

  LOCKSTEP_HOST_DEVICE Prepared prepare(const StepState& state) const {
    const double decay = hyperparameters.weight_decay;
    return {
        AdamStep::prepare(hyperparameters, state),
        static_cast<float>(kDecoupledDecay ? 1.0 - state.rate(hyperparameters.lr) * decay : decay)};
  }

  struct Double : DoubleAdamStep {
    using DoubleAdamStep::DoubleAdamStep;
  };

  Double prepare_double(const StepState& state, const DoubleScale& scale) const {
    const double decay = hyperparameters.weight_decay;
    Double form(hyperparameters, state, scale);
    if constexpr (kDecoupledDecay) {
      form.keep = 1.0 - state.rate(hyperparameters.lr) * decay;
    } else {
      form.l2 = decay;
    }
    return form;
  }
};

using AdamUpdate = AdamFamilyUpdate</*kDecoupledDecay=*/false>;
using AdamWUpdate = AdamFamilyUpdate</*kDecoupledDecay=*/true>;

}  // namespace lockstep::amp
