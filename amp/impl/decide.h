#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/core/Device.h>
#include <lockstep/amp/impl/decision.h>

namespace lockstep::amp {

/// decide() and conclude() where the data are: at once in host memory, on the current stream in
/// device memory, where the host never waits.
void decide_in_place(Decision* decision, const ScalerState* scaler, const DecisionRule& rule,
                     c10::Device device);
void conclude_in_place(Decision* decision, ScalerState* scaler, const DecisionRule& rule,
                       c10::Device device);

}  // namespace lockstep::amp
