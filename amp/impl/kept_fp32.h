#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>

namespace lockstep::amp {

/// From now on matrix products, convolutions, recurrent layers and attention that this parameter,
/// or a view of it, takes part in are computed in fp32 under amp::Autocast, whatever its dtype;
/// half operands are widened first. Throws Error for _scaled_dot_product_flash_attention, which
/// cannot. Autocast alone casts fp32 weights down: then a layer that overflows in fp16 would do so
/// even if its weights are kept in fp32 (Precision::keep_fp32).
///
/// How: the tensor gets a dispatch key of its own, for which the operators of autocast's
/// low-precision list have kernels that widen. Nothing happens outside amp::Autocast.
/// Assigning other data (set_data) to the parameter takes the mark away.
/// `parameter`: dense, on any device. Threads: while no other uses it. Ranks: local.
void compute_in_fp32(const at::Tensor& parameter);

/// True if the parameter is marked.
bool computes_in_fp32(const at::Tensor& parameter);

}  // namespace lockstep::amp
