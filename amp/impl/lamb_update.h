#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/adam_update.h>

namespace lockstep::amp {

/// LAMB in two passes over one parameter. The first updates the moments and returns the directions,
/// for their norm. The second computes the directions again from the stored moments and moves the
/// weights along them, scaled by the trust ratio.
struct LambUpdate {
  static constexpr int kMoments = 2;
  static constexpr std::array<const char*, kMoments> kMomentNames = {"exp_avg", "exp_avg_sq"};
  static constexpr bool kWholeParameters = true;
  AdamHyperparameters hyperparameters;

  template <typename T>
  struct Direction {
    static constexpr bool kTakesRoots = AdamStep<T>::kTakesRoots;
    AdamStep<T> step;
    T correction1, weight_decay;
    LOCKSTEP_HOST_DEVICE T of(T weight, T m, T root) const {
      const T denominator = step.denominator(root);
      if constexpr (kIsDouble<T>) {
        return m / correction1 / denominator + weight_decay * weight;
      } else {
        return (m * correction1) / denominator + weight_decay * weight;
      }
    }
    LOCKSTEP_HOST_DEVICE T move_moments(T weight, T gradient, T& m, T& v) const {
      step.move_moments(step.scaled(gradient), m, v);
      return weight;
    }
    /// Returns the direction, not a weight.
    LOCKSTEP_HOST_DEVICE T operator()(T weight, T gradient_or_root, T& m, T& v) const {
      if constexpr (kTakesRoots) {
        return of(weight, m, gradient_or_root);
      } else {
        move_moments(weight, gradient_or_root, m, v);
        return of(weight, m, std::sqrt(v));
      }
    }
  };

  template <typename T>
  using Prepared = Direction<T>;

  template <typename T>
  struct Move {
    static constexpr bool kTakesRoots = false;  // the moments are updated already
    Direction<T> direction;
    T size;  // learning rate times trust ratio
    LOCKSTEP_HOST_DEVICE T operator()(T weight, T gradient_or_root, T& m, T& v) const {
      const T root = kIsDouble<T> ? gradient_or_root : std::sqrt(v);
      return weight - size * direction.of(weight, m, root);
    }
  };

  template <typename T>
  LOCKSTEP_HOST_DEVICE Direction<T> prepare(const StepState& state,
                                            const GradientScale<T>& scale) const {
    const double correction =
        1.0 - std::pow(hyperparameters.beta1, static_cast<double>(state.update));
    return {AdamStep<T>::prepare(hyperparameters, state, scale),
            static_cast<T>(kIsDouble<T> ? correction : 1.0 / correction),
            static_cast<T>(hyperparameters.weight_decay)};
  }

  /// `weights`, `directions`: sums of squares over the whole parameter.
  template <typename T>
  LOCKSTEP_HOST_DEVICE Move<T> prepare_move(const Direction<T>& direction, const StepState& state,
                                            double weights, double directions) const {
    const bool trusts = hyperparameters.weight_decay != 0.0 && weights > 0.0 && directions > 0.0;
    const double ratio = trusts ? std::sqrt(weights) / std::sqrt(directions) : 1.0;
    return {direction, static_cast<T>(state.rate(hyperparameters.lr) * ratio)};
  }
};

}  // namespace lockstep::amp
