#pragma once

#include <lockstep/amp/update/adam_update.h>

namespace lockstep::amp {

/// LAMB in two passes over one parameter. The first moves the moments and gives each element's
/// direction, for its norm; the second takes the direction again from the moments as they are now
/// kept, and steps along it times the trust ratio.
struct LambUpdate {
  static constexpr int kMoments = 2;
  static constexpr std::array<const char*, kMoments> kMomentNames = {"exp_avg", "exp_avg_sq"};
  AdamHyperparameters hyperparameters;

  struct Direction {
    AdamStep step;
    float correction1, weight_decay;
    LOCKSTEP_HOST_DEVICE float of(float weight, float m, float v) const {
      return (m * correction1) / (std::sqrt(v) * step.root_correction + step.eps) +
             weight_decay * weight;
    }
    /// Returns the direction, not a weight.
    LOCKSTEP_HOST_DEVICE float operator()(float weight, float gradient, float& m, float& v) const {
      const float g = step.scaled(gradient);
      m = step.beta1 * m + step.rest1 * g;
      v = step.beta2 * v + step.rest2 * (g * g);
      return of(weight, m, v);
    }
  };

  using Prepared = Direction;

  struct Move {
    Direction direction;
    float size;  // learning rate times trust ratio
    LOCKSTEP_HOST_DEVICE float operator()(float weight, float, float& m, float& v) const {
      return weight - size * direction.of(weight, m, v);
    }
  };

  LOCKSTEP_HOST_DEVICE Direction prepare(const StepState& state) const {
    const double correction =
        1.0 - std::pow(hyperparameters.beta1, static_cast<double>(state.update));
    return {AdamStep::prepare(hyperparameters, state), static_cast<float>(1.0 / correction),
            static_cast<float>(hyperparameters.weight_decay)};
  }

  /// From the sums of squares of the weights and of the directions of the whole parameter.
  LOCKSTEP_HOST_DEVICE Move prepare_move(const Direction& direction, const StepState& state,
                                         double weights, double directions) const {
    const bool trusts = hyperparameters.weight_decay != 0.0 && weights > 0.0 && directions > 0.0;
    const double ratio = trusts ? std::sqrt(weights) / std::sqrt(directions) : 1.0;
    return {direction, static_cast<float>(state.rate(hyperparameters.lr) * ratio)};
  }

  /// The first two passes in fp64: moves the moments, then returns the direction.
  struct DoubleDirection : DoubleAdamStep {
    double weight_decay;
    double operator()(double weight, double root, double& m) const {
      return m / correction1 / denominator(root) + weight_decay * weight;
    }
  };

  /// The third.
  struct DoubleMove {
    static constexpr bool kTakesRoots = false;  // the moments have moved
    DoubleDirection direction;
    double size;  // learning rate times trust ratio
    double operator()(double weight, double root, double& m) const {
      return weight - size * direction(weight, root, m);
    }
  };

  DoubleDirection prepare_double(const StepState& state, const DoubleScale& scale) const {
    return {{hyperparameters, state, scale}, hyperparameters.weight_decay};
  }
};

}  // namespace lockstep::amp
