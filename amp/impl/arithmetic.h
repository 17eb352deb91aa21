#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/host_device.h>

#include <cmath>
#include <type_traits>

namespace lockstep::amp {

// What the functors of the optimizers share, for T = float and, on fp64 parameters in host memory,
// T = double. fp32 rounds every operation by itself, so host and device compute the same bits. In
// fp64 AdamW, Adam and SGD do the operations of torch.optim in their order. Where LibTorch's
// kernels fuse a product and a sum, so does this code, by std::fma: the bits are those of
// torch.optim on every processor with fused multiply-add, and the same ones, slower, on a processor
// without.

template <typename T>
constexpr bool kIsDouble = std::is_same_v<T, double>;

/// a * b + c
template <typename T>
LOCKSTEP_HOST_DEVICE T multiply_add(T a, T b, T c) {
  if constexpr (kIsDouble<T>) {
    return std::fma(a, b, c);
  } else {
    return a * b + c;
  }
}

/// from + weight * (to - from), as torch.lerp.
inline double lerp(double from, double to, double weight) {
  return weight < 0.5 ? std::fma(weight, to - from, from) : std::fma(weight - 1.0, to - from, to);
}

/// One step of an exponential moving average, `rest` = 1 - decay.
template <typename T>
LOCKSTEP_HOST_DEVICE T moved_towards(T average, T value, T rest) {
  if constexpr (kIsDouble<T>) {
    return lerp(average, value, rest);
  } else {
    return average + rest * (value - average);
  }
}

}  // namespace lockstep::amp
