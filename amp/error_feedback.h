#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace lockstep::amp {

/// A gradient on its way to a 16-bit wire, with what earlier roundings lost:
///   sum = gradient * factor + residual * residual_factor, in fp32
///   wire = sum rounded to the wire dtype, next = sum - wire
/// Requires: wire Half or BFloat16, gradient Float, Half or BFloat16; `next` may be `residual`.
/// Host memory, any thread. An infinite sum leaves a `next` that must not be used.
void cast_with_feedback(void* wire, c10::ScalarType wire_dtype, const void* gradient,
                        c10::ScalarType dtype, int64_t size, double factor, const float* residual,
                        float residual_factor, float* next);

}  // namespace lockstep::amp
