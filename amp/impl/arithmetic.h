#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/host_device.h>

#include <cmath>
#include <type_traits>

namespace lockstep::amp {

// Functions shared by the functors of the optimizers, for T = float and, for fp64 parameters in
// host memory, T = double. In fp32 every operation is rounded, so host and device compute the same
// bits. In fp64 AdamW, Adam and SGD do the operations of torch.optim in the same order. Where
// LibTorch's kernels fuse a product and a sum, this code uses std::fma: the bits are those of
// torch.optim on processors with fused multiply-add, and the same bits, slower, on others.

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
