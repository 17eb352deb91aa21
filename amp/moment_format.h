#pragma once

#include <cstdint>

namespace lockstep {

/// How an optimizer keeps its moments between updates; its arithmetic is fp32 in every format.
///
/// bf16 and int8 round randomly up or down so that the mean is right: rounding to nearest would
/// never let go of a value, since one update changes a second moment by a thousandth and the next
/// bf16 number is a 128th away. The random numbers are a function of element and update
/// (amp/random_bits.h), so nothing of them is saved and all ranks draw the same.
enum class MomentFormat : int32_t {
  fp32,  // 4 bytes an element
  bf16,  // 2 bytes; relative error of one rounding below 2^-7
  int8,  // 1 byte, and 4 for each block of 64 elements; see amp/eight_bit.h
};

namespace amp {

/// Elements of an int8 moment that share a scale.
constexpr int64_t moment_block = 64;

}  // namespace amp
}  // namespace lockstep
