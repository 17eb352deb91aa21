#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/arithmetic.h>
#include <lockstep/amp/impl/host_device.h>
#include <lockstep/amp/impl/step_state.h>

#include <array>
#include <cmath>

namespace lockstep::amp {

/// The hyper-parameters of Adam, AdamW and LAMB.
struct AdamHyperparameters {
  double lr, beta1, beta2, eps, weight_decay;
};

/// The arithmetic of one element, shared by all three. Coefficients are computed in fp64, once per
/// span.
template <typename T>
struct AdamStep {
  /// In fp64 the square roots are those of at::sqrt, which does not always round to nearest. So a
  /// functor with kTakesRoots makes two passes: move_moments() updates the moments of all elements;
  /// then the call operator gets the root of the second moment in place of the gradient.
  static constexpr bool kTakesRoots = kIsDouble<T>;
  GradientScale<T> scaled;
  T beta1, rest1, beta2, rest2, step_size, root_correction, eps;

  LOCKSTEP_HOST_DEVICE static AdamStep prepare(const AdamHyperparameters& h, const StepState& state,
                                               const GradientScale<T>& scale) {
    const double updates = static_cast<double>(state.update);
    const double second = 1.0 - std::pow(h.beta2, updates);
    AdamStep step;
    step.scaled = scale;
    step.beta1 = static_cast<T>(h.beta1);
    step.rest1 = static_cast<T>(1.0 - h.beta1);
    step.beta2 = static_cast<T>(h.beta2);
    step.rest2 = static_cast<T>(1.0 - h.beta2);
    step.step_size = static_cast<T>(state.rate(h.lr) / (1.0 - std::pow(h.beta1, updates)));
    if constexpr (kIsDouble<T>) {
      step.root_correction = std::pow(second, 0.5);
    } else {
      step.root_correction = static_cast<T>(1.0 / std::sqrt(second));
    }
    step.eps = static_cast<T>(h.eps);
    return step;
  }

  LOCKSTEP_HOST_DEVICE void move_moments(T gradient, T& m, T& v) const {
    if constexpr (kIsDouble<T>) {
      m = lerp(m, gradient, rest1);
      v = std::fma(rest2 * gradient, gradient, v * beta2);
    } else {
      m = beta1 * m + rest1 * gradient;
      v = beta2 * v + rest2 * (gradient * gradient);
    }
  }
  LOCKSTEP_HOST_DEVICE T denominator(T root) const {
    if constexpr (kIsDouble<T>) {
      return root / root_correction + eps;
    } else {
      return root * root_correction + eps;
    }
  }
  LOCKSTEP_HOST_DEVICE T moved(T weight, T m, T root) const {
    if constexpr (kIsDouble<T>) {
      return weight - step_size * m / denominator(root);
    } else {
      return weight - step_size * (m / denominator(root));
    }
  }
};

/// AdamW (decoupled decay: the weight is multiplied by 1 - lr * weight_decay) and Adam
/// (weight_decay * weight is added to the gradient).
template <bool kDecoupledDecay>
struct AdamFamilyUpdate {
  static constexpr int kMoments = 2;
  static constexpr std::array<const char*, kMoments> kMomentNames = {"exp_avg", "exp_avg_sq"};
  static constexpr bool kWholeParameters = false;
  AdamHyperparameters hyperparameters;

  template <typename T>
  struct Prepared {
    static constexpr bool kTakesRoots = AdamStep<T>::kTakesRoots;
    AdamStep<T> step;
    T decay;  // 1 - lr * weight_decay if decoupled; else weight_decay
    /// Returns the decayed weight.
    LOCKSTEP_HOST_DEVICE T move_moments(T weight, T gradient, T& m, T& v) const {
      const T g = step.scaled(gradient);
      step.move_moments(kDecoupledDecay ? g : multiply_add(decay, weight, g), m, v);
      return kDecoupledDecay ? weight * decay : weight;
    }
    LOCKSTEP_HOST_DEVICE T operator()(T weight, T gradient_or_root, T& m, T& v) const {
      if constexpr (kTakesRoots) {
        return step.moved(weight, m, gradient_or_root);
      } else {
        const T decayed = move_moments(weight, gradient_or_root, m, v);
        return step.moved(decayed, m, std::sqrt(v));
      }
    }
  };

  template <typename T>
  LOCKSTEP_HOST_DEVICE Prepared<T> prepare(const StepState& state,
                                           const GradientScale<T>& scale) const {
    const double decay = hyperparameters.weight_decay;
    return {AdamStep<T>::prepare(hyperparameters, state, scale),
            static_cast<T>(kDecoupledDecay ? 1.0 - state.rate(hyperparameters.lr) * decay : decay)};
  }
};

using AdamUpdate = AdamFamilyUpdate</*kDecoupledDecay=*/false>;
using AdamWUpdate = AdamFamilyUpdate</*kDecoupledDecay=*/true>;

}  // namespace lockstep::amp
