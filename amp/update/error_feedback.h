#pragma once

#include <c10/core/ScalarType.h>
#include <lockstep/amp/impl/decision.h>

#include <cstdint>

namespace lockstep::amp {

/// Casts a gradient to a 16-bit wire dtype with error feedback:
///   sum = gradient * factor + kept residual * state.factor, in fp32
///   wire = sum rounded to the wire dtype, next residual = sum - wire
/// Without a gradient (null) the wire gets zeros, and the residual stays:
///   next residual = kept residual * state.factor
/// Requires: wire Half or BFloat16, gradient Float, Half or BFloat16. Host memory, any thread.
/// If a sum is infinite, the residuals are invalid; all ranks skip that update.
void cast_with_feedback(void* wire, c10::ScalarType wire_dtype, const void* gradient,
                        c10::ScalarType dtype, int64_t size, double factor,
                        const Residuals& residuals, const FeedbackState& state);

}  // namespace lockstep::amp
