#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/arithmetic.h>
#include <lockstep/amp/impl/host_device.h>
#include <lockstep/amp/impl/step_state.h>

#include <array>

namespace lockstep::amp {

/// Lion: the sign of an interpolation of moment and gradient, with decoupled weight decay.
struct LionUpdate {
  static constexpr int kMoments = 1;
  static constexpr std::array<const char*, kMoments> kMomentNames = {"exp_avg"};
  static constexpr bool kWholeParameters = false;
  double lr, beta1, beta2, weight_decay;

  template <typename T>
  struct Prepared {
    static constexpr bool kTakesRoots = false;
    GradientScale<T> scaled;
    T keep, lr, beta1, rest1, beta2, rest2;
    LOCKSTEP_HOST_DEVICE T operator()(T weight, T gradient, T& m) const {
      const T g = scaled(gradient);
      const T direction = multiply_add(rest1, g, beta1 * m);
      m = multiply_add(rest2, g, beta2 * m);
      const T move = direction > T(0) ? lr : (direction < T(0) ? -lr : T(0));
      return weight * keep - move;
    }
  };

  template <typename T>
  LOCKSTEP_HOST_DEVICE Prepared<T> prepare(const StepState& state,
                                           const GradientScale<T>& scale) const {
    const double rate = state.rate(lr);
    return {scale,
            static_cast<T>(1.0 - rate * weight_decay),
            static_cast<T>(rate),
            static_cast<T>(beta1),
            static_cast<T>(1.0 - beta1),
            static_cast<T>(beta2),
            static_cast<T>(1.0 - beta2)};
  }
};

}  // namespace lockstep::amp
