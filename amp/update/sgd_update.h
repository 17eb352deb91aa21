#pragma once

#include <lockstep/amp/host_device.h>
#include <lockstep/amp/step_state.h>

#include <array>

namespace lockstep::amp {

/// SGD without momentum, with L2 weight decay.
struct SgdUpdate {
  static constexpr int kMoments = 0;
  static constexpr bool kSecondMoment = false;
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
};

/// SGD with momentum. The first update sets the buffer to the gradient, as torch.optim.SGD.
struct MomentumUpdate {
  static constexpr int kMoments = 1;
  static constexpr bool kSecondMoment = false;
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
};

}  // namespace lockstep::amp
