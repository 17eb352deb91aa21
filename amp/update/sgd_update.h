#pragma once

#include <lockstep/amp/host_device.h>
#include <lockstep/amp/step_state.h>
#include <lockstep/amp/update/double_arithmetic.h>

#include <array>

namespace lockstep::amp {

/// SGD without momentum, with L2 weight decay.
struct SgdUpdate {
  static constexpr int kMoments = 0;
  static constexpr std::array<const char*, kMoments> kMomentNames = {};
  double lr, weight_decay;

  struct Prepared {
    GradientScale scaled;
    float l2, lr;
    LOCKSTEP_HOST_DEVICE float operator()(float weight, float gradient) const {
      return weight - lr * (scaled(gradient) + l2 * weight);
    }
  };

  LOCKSTEP_HOST_DEVICE Prepared prepare(const StepState& state) const {
    return {state.gradient_scale(), static_cast<float>(weight_decay),
            static_cast<float>(state.rate(lr))};
  }

  struct Double {
    static constexpr bool kTakesRoots = false;
    DoubleScale scaled;
    double l2, lr;
    double operator()(double weight, double gradient) const {
      return std::fma(-lr, std::fma(l2, weight, scaled(gradient)), weight);
    }
  };

  Double prepare_double(const StepState& state, const DoubleScale& scale) const {
    return {scale, weight_decay, state.rate(lr)};
  }
};

/// SGD with momentum. The first update sets the buffer to the gradient, as torch.optim.SGD.
struct MomentumUpdate {
  static constexpr int kMoments = 1;
  static constexpr std::array<const char*, kMoments> kMomentNames = {"momentum_buffer"};
  double lr, momentum, dampening, weight_decay;
  bool nesterov;

  struct Prepared {
    GradientScale scaled;
    float l2, lr;
    float keep, add;                     // buffer = keep * buffer + add * gradient
    float gradient_share, buffer_share;  // direction = shares of both
    LOCKSTEP_HOST_DEVICE float operator()(float weight, float gradient, float& buffer) const {
      const float decayed = scaled(gradient) + l2 * weight;
      buffer = keep * buffer + add * decayed;
      return weight - lr * (gradient_share * decayed + buffer_share * buffer);
    }
  };

  LOCKSTEP_HOST_DEVICE Prepared prepare(const StepState& state) const {
    const bool first = state.update == 1;
    Prepared p;
    p.scaled = state.gradient_scale();
    p.l2 = static_cast<float>(weight_decay);
    p.lr = static_cast<float>(state.rate(lr));
    p.keep = first ? 0.0F : static_cast<float>(momentum);
    p.add = first ? 1.0F : static_cast<float>(1.0 - dampening);
    p.gradient_share = nesterov ? 1.0F : 0.0F;
    p.buffer_share = nesterov ? static_cast<float>(momentum) : 1.0F;
    return p;
  }

  struct Double {
    static constexpr bool kTakesRoots = false;
    DoubleScale scaled;
    double l2, lr, keep, add, gradient_share, buffer_share;
    double operator()(double weight, double gradient, double& buffer) const {
      const double decayed = std::fma(l2, weight, scaled(gradient));
      buffer = std::fma(add, decayed, buffer * keep);
      return std::fma(-lr, std::fma(buffer_share, buffer, gradient_share * decayed), weight);
    }
  };

  Double prepare_double(const StepState& state, const DoubleScale& scale) const {
    const bool first = state.update == 1;
    return {scale,
            weight_decay,
            state.rate(lr),
            first ? 0.0 : momentum,
            first ? 1.0 : 1.0 - dampening,
            nesterov ? 1.0 : 0.0,
            nesterov ? momentum : 1.0};
  }
};

}  // namespace lockstep::amp
