#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/adam_update.h>
#include <lockstep/amp/impl/lion_update.h>
#include <lockstep/amp/impl/sgd_update.h>

/// The list of the update functors: calls the macro `apply` with each of them. Kernels for host
/// memory and for device memory, and their tests, are compiled for these. LAMB is not on this list:
/// its step depends on a whole parameter, so it has kernels of its own (lamb_update.h).
#define LOCKSTEP_FOR_EACH_UPDATE(apply) \
  apply(AdamWUpdate) apply(AdamUpdate) apply(LionUpdate) apply(SgdUpdate) apply(MomentumUpdate)

/// The list of the optimizers of optimizers.h, which are classes in namespace lockstep. The C
/// interface takes their names from it, and `doctor` runs their kernels; what both expect of a
/// class is said at Grouped.
#define LOCKSTEP_FOR_EACH_OPTIMIZER(apply) \
  apply(AdamW) apply(Adam) apply(SGD) apply(LAMB) apply(Lion)
