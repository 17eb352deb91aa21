#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>

namespace lockstep::amp {

/// Marks `parameter`: under amp::Autocast, matrix products, convolutions, recurrent layers and
/// attention with this parameter or a view of it are computed in fp32; half operands are widened
/// first. (_scaled_dot_product_flash_attention, which cannot, throws Error.) Without the mark
/// autocast casts fp32 weights down, so a layer that overflows in fp16 would still overflow with
/// Precision::keep_fp32.
///
/// The mark is a dispatch key for which the operators of autocast's low-precision list widen. It
/// has no effect outside amp::Autocast. set_data() on the parameter removes it. `parameter`: dense,
/// on any device. Threads: no other thread may use the parameter meanwhile. Ranks: local.
void compute_in_fp32(const at::Tensor& parameter);

/// True if the parameter is marked.
bool computes_in_fp32(const at::Tensor& parameter);

}  // namespace lockstep::amp
