#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace lockstep::kernels {

/// out[i] = in[i] * factor, rounded to nearest even. Any pair of float32, float16 and bfloat16,
/// multiplied in fp32 (so a power-of-two factor means one rounding), or float64 to float64.
/// `out` may be `in` if the types are equal; otherwise they must not overlap. Bits do not depend on
/// the processor. Throws Error for other types. Any thread.
void cast_scaled(void* out, c10::ScalarType out_type, const void* in, c10::ScalarType in_type,
                 int64_t n, double factor);

/// sum[i] += in[i], in fp32. Types of `in`: float32, float16, bfloat16.
void accumulate(float* sum, const void* in, c10::ScalarType in_type, int64_t n);

}  // namespace lockstep::kernels
