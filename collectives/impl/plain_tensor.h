#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>

#include <string>

namespace lockstep::detail {

// The one door for tensors that lockstep did not make and whose memory it reads or writes.

/// Why the memory of `tensor` does not hold its values one by one, and what to do: it is on the
/// meta device, quantised, nested, sparse or opaque. Empty if it does. Lazy signs do not count.
std::string why_not_plain(const at::Tensor& tensor);

/// True if LibTorch keeps a part of the values beside the memory: a conjugation or a minus that is
/// yet to be applied, or zeros without memory.
bool is_lazy(const at::Tensor& tensor);

/// A tensor whose memory holds the values of `tensor`, to be read: `tensor` itself, or a copy where
/// it is lazy. Throws Error that begins with `what` for a tensor that is not plain.
at::Tensor plain(const at::Tensor& tensor, const std::string& what);

/// The same for a tensor that is known to be plain but may be lazy.
at::Tensor applied(const at::Tensor& tensor);

}  // namespace lockstep::detail
