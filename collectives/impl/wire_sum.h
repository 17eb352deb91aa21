#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/communicator.h>

namespace lockstep::detail {

/// Transport::rounds_at_each_rank(): true over NCCL; false where hosts compute the sum, also that
/// of device tensors.
bool rounds_at_each_rank(const Communicator& communicator);

/// The worst error of such a sum over `ranks` ranks of one floating dtype, relative to the sum of
/// the terms' magnitudes: (1 + u)^(ranks - 1) - 1, where u is the dtype's unit roundoff. The terms
/// are taken as exact. Holds for every order of the additions.
double sum_error_bound(c10::ScalarType dtype, int ranks);

/// The default wire dtype for gradients of `dtype`: fp32 if dtype is fp16 or bf16 and
/// sum_error_bound() exceeds 1/32, that is for bf16 above 8 ranks and fp16 above 64; else `dtype`.
c10::ScalarType dtype_for_sums(c10::ScalarType dtype, int ranks);

}  // namespace lockstep::detail
