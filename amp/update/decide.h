#pragma once

#include <c10/core/Device.h>
#include <lockstep/amp/update/decision.h>

namespace lockstep::amp {

/// decide() and conclude() where the data are: at once in host memory, on the current stream in
/// device memory, where the host never waits.
void decide_in_place(Decision* decision, const ScalerState* scaler, const DecisionRule& rule,
                     c10::Device device);
void conclude_in_place(Decision* decision, ScalerState* scaler, const DecisionRule& rule,
                       c10::Device device);

}  // namespace lockstep::amp
