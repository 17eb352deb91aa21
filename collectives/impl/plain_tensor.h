#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>

#include <string>

namespace lockstep::detail {

// Checks of tensors that lockstep did not make and whose memory it reads or writes.

/// Empty if the memory of `tensor` holds its values one by one. Otherwise why it does not (meta
/// device, quantised, nested, sparse or opaque) and what to do. Ignores what is_lazy() reports.
std::string why_not_plain(const at::Tensor& tensor);

/// True if the memory alone does not give the values: a conjugation or negation is yet to be
/// applied, or the tensor is a zero tensor without memory.
bool is_lazy(const at::Tensor& tensor);

/// A tensor to read whose memory holds the values of `tensor`: `tensor` itself, or a copy if it is
/// lazy. Throws Error that begins with `what` for a tensor that is not plain.
at::Tensor plain(const at::Tensor& tensor, const std::string& what);

/// The same for a tensor that is known to be plain but may be lazy.
at::Tensor applied(const at::Tensor& tensor);

}  // namespace lockstep::detail
