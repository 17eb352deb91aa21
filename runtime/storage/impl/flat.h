#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>

#include <string>

namespace lockstep::detail {

/// The elements of a dense tensor in memory order, as a one-dimensional alias without gradient:
/// contiguous and channels_last tensors alike. Throws Error naming the tensor if it has gaps or
/// overlaps (an expanded or sliced tensor).
at::Tensor flat_alias(const at::Tensor& tensor, const std::string& name);

/// The tensor as it is trained: the real numbers of a complex one, as at::view_as_real() shows
/// them; any other tensor itself. An alias.
at::Tensor real_view(const at::Tensor& tensor);

/// The tensor as a snapshot can hold it: the real view if it is complex128.
at::Tensor storable_view(const at::Tensor& tensor);

/// Elements of `flat` from `offset` on, with the sizes and strides of `like`: an alias, which
/// autograd does not track as a view. If `like` is complex, a complex tensor over the reals there.
at::Tensor shaped_view(const at::Tensor& flat, int64_t offset, const at::Tensor& like);

/// True if the elements of two dense tensors of the same sizes have the same order in memory. The
/// stride of a dimension of size 1 says nothing about the order: the weight of a 1x1 convolution is
/// contiguous and channels_last at once.
bool same_memory_order(const at::Tensor& a, const at::Tensor& b);

}  // namespace lockstep::detail
