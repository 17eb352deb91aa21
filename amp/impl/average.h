#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/update_rule.h>

namespace lockstep::amp {

/// Moves `span.average`, if there is one, towards the present weights; does nothing if state->skip.
/// For weights that no UpdateRule updates, since a rule does this itself. Host or device memory,
/// `state` in the memory of the span.
void move_average(const FlatSpan& span, const StepState* state);

}  // namespace lockstep::amp
