#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/precision.h>
#include <lockstep/collectives/communicator.h>

namespace lockstep::detail {

/// The precision with the dtype in which a Trainer's gradients travel: `precision`'s own, or fp32
/// where the program named none and the sum over the ranks of `devices` would be too wrong in 16
/// bits (collectives/impl/wire_sum.h). Local.
Precision with_default_wire(const Precision& precision, const Communicator& devices);

/// The reduction that gives the mean of a Trainer's gradients (ReducerOptions::op). Over NCCL it is
/// a sum, since NCCL's fastest kernels (NVLS, symmetric memory) know plain sums only; packing,
/// which multiplies anyway, divides. Elsewhere it is the mean; also with Precision::predivide.
/// Local.
ReduceOp gradient_operation(const Precision& precision, const Communicator& devices);

}  // namespace lockstep::detail
