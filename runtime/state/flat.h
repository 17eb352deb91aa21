#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace lockstep::detail {

/// The elements of a dense tensor in memory order, as a one-dimensional alias without gradient:
/// contiguous and channels_last tensors alike. Throws Error naming the tensor if it has gaps or
/// overlaps (an expanded or sliced tensor).
at::Tensor flat_alias(const at::Tensor& tensor, const std::string& name);

/// Elements of `flat` from `offset` on, with the sizes and strides of `like`: an alias, which
/// autograd does not track as a view.
at::Tensor shaped_view(const at::Tensor& flat, int64_t offset, const at::Tensor& like);

}  // namespace lockstep::detail
