#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/communicator.h>

namespace lockstep::detail {

/// Whether sums are rounded to the tensor's dtype at each rank that they pass (NCCL). False: they
/// are made in fp32 and rounded once (hosts, and device tensors that the host sums).
bool rounds_at_each_rank(const Communicator& communicator);

/// The worst error of such a sum over `ranks` ranks of one floating dtype, relative to the sum of
/// the terms' magnitudes: (1 + u)^(ranks - 1) - 1, where u is the dtype's unit roundoff. The terms
/// count as exact. Holds for every order of the additions.
double sum_error_bound(c10::ScalarType dtype, int ranks);

/// The dtype in which gradients travel by default where `dtype` would do for an exact sum: fp32 if
/// dtype is fp16 or bf16 and its sum over so many ranks may be wrong by more than 1/32, that is
/// bf16 above 8 ranks and fp16 above 64.
c10::ScalarType dtype_for_sums(c10::ScalarType dtype, int ranks);

}  // namespace lockstep::detail
