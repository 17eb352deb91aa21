#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/amp/cuda/update_pack.h>
#include <lockstep/amp/optimizer.h>

namespace lockstep::amp {

/// A flat tensor as device code takes it. Throws Error for dtypes but Float, Half and BFloat16.
Elements elements_of(const at::Tensor& flat);

/// The arrays of a span that check_span() and check_cuda_span() have accepted.
UpdateArrays arrays_of(const FlatSpan& span);

}  // namespace lockstep::amp
