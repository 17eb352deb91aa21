#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/update_rule.h>

namespace lockstep::amp {

/// Moves `span.average`, if there is one, towards the weights as they are: what an UpdateRule does
/// in passing, for weights that are moved elsewhere or not at all; nothing when state->skip. Host
/// or device memory, `state` where the span is.
void move_average(const FlatSpan& span, const StepState* state);

}  // namespace lockstep::amp
