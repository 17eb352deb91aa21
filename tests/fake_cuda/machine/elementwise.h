#pragma once

#include <bit>
#include <cfenv>
#include <cstdint>
#include <string>

#include "../common/work.h"
#include "block.h"
#include "instruction.h"
#include "lanes.h"
#include "warp.h"

/// What the operations have in common. Their files are compiled with -O3 -mavx2 -mfma -mf16c, so
/// that loops over the lanes become vector instructions, with -ffp-contract=off, since each
/// instruction rounds as it says, and with -frounding-math, since some change the rounding.
namespace fake_cuda {

[[noreturn]] inline void cannot_execute(Warp& warp, const Instruction& i) {
  throw DeviceFault(cudaErrorNotSupported, "the machine cannot execute \"" + i.text + "\" at " +
                                               std::to_string(i.pc) + " of the kernel " +
                                               warp.block().program().kernel);
}

/// The destination becomes value(lane).
template <typename Value>
inline void set_each(Warp& warp, const Instruction& i, uint32_t mask, Value value) {
  Lanes result;
  for (int lane = 0; lane < kLanes; ++lane) {
    result.v[lane] = value(lane);
  }
  warp.set(i.to, result.v, mask);
}

inline float as_float(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline uint32_t bits_of(float value) {
  return std::bit_cast<uint32_t>(value);
}
inline double as_double(uint64_t bits) {
  return std::bit_cast<double>(bits);
}
inline uint64_t bits_of(double value) {
  return std::bit_cast<uint64_t>(value);
}

constexpr uint32_t kNan = 0x7fffffff;  // the NaN that float instructions make
constexpr uint32_t kHalfNan = 0x7fff;
constexpr uint32_t kSign = 0x80000000;

/// A denormal becomes zero with its sign.
inline uint32_t flushed(uint32_t bits) {
  return bits & 0x7f800000 ? bits : bits & kSign;
}
inline float flushed(float value) {
  return as_float(flushed(bits_of(value)));
}

/// A source as floats, without denormals if the instruction says .FTZ.
inline const float* float_source(Warp& warp, const Instruction& i, const Operand& o, Lanes& place) {
  const float* from = warp.real(o, place);
  if (!i.mods[Mod::kFTZ]) {
    return from;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    place.v[lane] = flushed(bits_of(from[lane]));
  }
  return reinterpret_cast<const float*>(place.v);
}

/// The rounding that the instruction asks for, as long as this lives.
class Rounding {
 public:
  explicit Rounding(const Mods& mods) {
    if (mods[Mod::kRM]) {
      set(FE_DOWNWARD);
    } else if (mods[Mod::kRP]) {
      set(FE_UPWARD);
    } else if (mods[Mod::kRZ]) {
      set(FE_TOWARDZERO);
    }
  }
  ~Rounding() {
    if (is_set_) {
      fesetround(FE_TONEAREST);
    }
  }
  Rounding(const Rounding&) = delete;
  Rounding& operator=(const Rounding&) = delete;

 private:
  void set(int mode) {
    fesetround(mode);
    is_set_ = true;
  }
  bool is_set_ = false;
};

/// Where the comparison of the modifiers holds. Those that end in U hold for NaN, too.
template <typename T>
uint32_t lanes_that_compare(Warp& warp, const Instruction& i, const T* a, const T* b) {
  const Mods& m = i.mods;
  if (m[Mod::kLT]) {
    return lanes_where([&](int l) { return a[l] < b[l]; });
  }
  if (m[Mod::kEQ]) {
    return lanes_where([&](int l) { return a[l] == b[l]; });
  }
  if (m[Mod::kLE]) {
    return lanes_where([&](int l) { return a[l] <= b[l]; });
  }
  if (m[Mod::kGT]) {
    return lanes_where([&](int l) { return a[l] > b[l]; });
  }
  if (m[Mod::kNE]) {
    return lanes_where([&](int l) { return a[l] < b[l] || a[l] > b[l]; });
  }
  if (m[Mod::kGE]) {
    return lanes_where([&](int l) { return a[l] >= b[l]; });
  }
  if (m[Mod::kNUM]) {
    return lanes_where([&](int l) { return a[l] == a[l] && b[l] == b[l]; });
  }
  if (m[Mod::kNAN]) {
    return lanes_where([&](int l) { return !(a[l] == a[l] && b[l] == b[l]); });
  }
  if (m[Mod::kLTU]) {
    return lanes_where([&](int l) { return !(a[l] >= b[l]); });
  }
  if (m[Mod::kEQU]) {
    return lanes_where([&](int l) { return !(a[l] < b[l] || a[l] > b[l]); });
  }
  if (m[Mod::kLEU]) {
    return lanes_where([&](int l) { return !(a[l] > b[l]); });
  }
  if (m[Mod::kGTU]) {
    return lanes_where([&](int l) { return !(a[l] <= b[l]); });
  }
  if (m[Mod::kNEU]) {
    return lanes_where([&](int l) { return !(a[l] == b[l]); });
  }
  if (m[Mod::kGEU]) {
    return lanes_where([&](int l) { return !(a[l] < b[l]); });
  }
  if (m[Mod::kF] || m[Mod::kT]) {
    return m[Mod::kT] ? kAllLanes : 0;
  }
  cannot_execute(warp, i);
}

/// A comparison's result, joined with the predicate p.
inline uint32_t joined(Warp& warp, const Instruction& i, uint32_t value) {
  const uint32_t with = warp.read(i.p);
  return i.mods[Mod::kOR] ? value | with : i.mods[Mod::kXOR] ? value ^ with : value & with;
}

/// Writes a comparison's result and its contrary.
inline void write_comparison(Warp& warp, const Instruction& i, uint32_t value, uint32_t mask) {
  const uint32_t first = joined(warp, i, value), second = joined(warp, i, ~value);
  warp.write(i.to_flag, first, mask);
  warp.write(i.to_flag2, second, mask);
}

}  // namespace fake_cuda
