#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/arithmetic.h>
#include <lockstep/amp/impl/host_device.h>
#include <lockstep/amp/impl/step_state.h>

#include <array>

namespace lockstep::amp {

/// SGD without momentum, with L2 weight decay.
struct SgdUpdate {
  static constexpr int kMoments = 0;
  static constexpr std::array<const char*, kMoments> kMomentNames = {};
  static constexpr bool kWholeParameters = false;
  double lr, weight_decay;

  template <typename T>
  struct Prepared {
    static constexpr bool kTakesRoots = false;
    GradientScale<T> scaled;
    T l2, lr;
    LOCKSTEP_HOST_DEVICE T operator()(T weight, T gradient) const {
      return multiply_add(-lr, multiply_add(l2, weight, scaled(gradient)), weight);
    }
  };

  template <typename T>
  LOCKSTEP_HOST_DEVICE Prepared<T> prepare(const StepState& state,
                                           const GradientScale<T>& scale) const {
    return {scale, static_cast<T>(weight_decay), static_cast<T>(state.rate(lr))};
  }
};

/// SGD with momentum. The first update sets the buffer to the gradient, as torch.optim.SGD.
struct MomentumUpdate {
  static constexpr int kMoments = 1;
  static constexpr std::array<const char*, kMoments> kMomentNames = {"momentum_buffer"};
  static constexpr bool kWholeParameters = false;
  double lr, momentum, dampening, weight_decay;
  bool nesterov;

  template <typename T>
  struct Prepared {
    static constexpr bool kTakesRoots = false;
    GradientScale<T> scaled;
    T l2, lr;
    T keep, add;                     // buffer = keep * buffer + add * gradient
    T gradient_share, buffer_share;  // direction = shares of both
    LOCKSTEP_HOST_DEVICE T operator()(T weight, T gradient, T& buffer) const {
      const T decayed = multiply_add(l2, weight, scaled(gradient));
      buffer = multiply_add(add, decayed, buffer * keep);
      return multiply_add(-lr, multiply_add(buffer_share, buffer, gradient_share * decayed),
                          weight);
    }
  };

  template <typename T>
  LOCKSTEP_HOST_DEVICE Prepared<T> prepare(const StepState& state,
                                           const GradientScale<T>& scale) const {
    const bool first = state.update == 1;
    return {scale,
            static_cast<T>(weight_decay),
            static_cast<T>(state.rate(lr)),
            static_cast<T>(first ? 0.0 : momentum),
            static_cast<T>(first ? 1.0 : 1.0 - dampening),
            static_cast<T>(nesterov ? 1.0 : 0.0),
            static_cast<T>(nesterov ? momentum : 1.0)};
  }
};

}  // namespace lockstep::amp
