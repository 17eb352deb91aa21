#pragma once

#include <lockstep/amp/update/adam_update.h>
#include <lockstep/amp/update/lion_update.h>
#include <lockstep/amp/update/sgd_update.h>

/// The list of the update functors: calls the macro `apply` with each of them. Kernels for host
/// memory and for device memory, and their tests, are compiled for these. A new optimizer is the
/// header of its functor, a line here, its form in fp64 (double_forms.h, double_update.cpp), a
/// class in optimizers.h and optimizers.cpp, and its formula in tests/amp/update_samples.h. LAMB is
/// not on the list: its step depends on a whole parameter, so it has a rule and kernels of its own
/// (lamb_rule.h).
#define LOCKSTEP_FOR_EACH_UPDATE(apply) \
  apply(AdamWUpdate) apply(AdamUpdate) apply(LionUpdate) apply(SgdUpdate) apply(MomentumUpdate)
