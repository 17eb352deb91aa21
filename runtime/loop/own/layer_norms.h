#pragma once

#include <lockstep/runtime/step_report.h>
#include <lockstep/runtime/trainer/impl/log_file.h>

namespace lockstep::detail {

class Reducer;

/// Adds gradient_norm/NAME and weight_norm/NAME of each parameter that trains. `report`: of the
/// last window, whose gradients `reducer` still holds. The gradients of a skipped update are NaN.
/// Local; on a device it waits for that window.
void add_layer_norms(const Reducer& reducer, const StepReport& report, LogValues& values);

}  // namespace lockstep::detail
