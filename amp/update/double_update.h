#pragma once

#include <lockstep/amp/optimizer.h>
#include <lockstep/amp/update/lamb_update.h>

namespace lockstep::amp {

/// UpdateRule::apply on a span whose master is fp64, in host memory, for the functors of
/// optimizer_list.h. `state`: the span's own (step_of()). The bits do not depend on the number of
/// threads. Adam, AdamW and LAMB allocate one array of the span's length.
template <typename Update>
void update_double(const Update& update, const FlatSpan& span, const StepState& state);
/// Of LAMB; the span is one parameter.
void update_double(const LambUpdate& update, const FlatSpan& span, const StepState& state);

/// move_average() of such a span.
void average_double(const FlatSpan& span, const StepState& state);

}  // namespace lockstep::amp
