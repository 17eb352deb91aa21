#pragma once

#include <cstdint>

namespace lockstep {

/// The storage format of an optimizer's moments between updates; the arithmetic is fp32 in both.
///
/// bf16 uses stochastic rounding, so that the mean is exact. With rounding to nearest a second
/// moment would get stuck: one update changes it by a thousandth, and the next bf16 number is a
/// 128th away. The random numbers depend only on the element and the update
/// (amp/impl/random_bits.h), so there is no random state to save, and all ranks draw the same
/// numbers.
enum class MomentFormat : int32_t {
  fp32,  // 4 bytes per element; moments of fp64 parameters are fp64 and take this format only
  bf16,  // 2 bytes per element; relative error of one rounding below 2^-7
};

}  // namespace lockstep
