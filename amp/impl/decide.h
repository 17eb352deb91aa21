#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/core/Device.h>
#include <lockstep/amp/impl/decision.h>

namespace lockstep::amp {

/// decide() and conclude() in the memory of the data: at once for the host; for a device on the
/// current stream, and the host does not wait.
void decide_in_place(Decision* decision, const ScalerState* scaler, const DecisionRule& rule,
                     c10::Device device);
void conclude_in_place(Decision* decision, ScalerState* scaler, const DecisionRule& rule,
                       c10::Device device);

}  // namespace lockstep::amp
