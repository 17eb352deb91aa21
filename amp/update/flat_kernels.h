#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/amp/update/decision.h>

namespace lockstep::amp {

/// What a step does to flat arrays, on the device where they are. Tensors: dense, both on one
/// device; elements are taken in memory order, so a channels_last gradient fits its flat slot. In
/// device memory all is put on the current stream and the host never waits.

/// to = from * factor, multiplied in fp32 and rounded once; fp32, fp16, bf16. If either is fp64,
/// multiplied in fp64 and rounded once.
void cast_flat(const at::Tensor& to, const at::Tensor& from, double factor);

/// cast_with_feedback() (error_feedback.h) to a 16-bit `wire`; `gradient` may be undefined.
/// `residuals`: fp32 of shape {2, n}, the arrays that change their parts. `state` lies in the
/// memory of the device.
void cast_with_feedback(const at::Tensor& wire, const at::Tensor& gradient, double factor,
                        const at::Tensor& residuals, const FeedbackState* state);

/// sum += from, in the dtype of `sum`: fp32, or fp64.
void accumulate_flat(const at::Tensor& sum, const at::Tensor& from);

/// Adds a bucket to `totals`, fp64 elements on the same device: the sum of squares, and the number
/// of buckets with an element that is not finite.
void measure_into(const at::Tensor& flat, const at::Tensor& totals);

}  // namespace lockstep::amp
