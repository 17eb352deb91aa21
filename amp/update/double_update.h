#pragma once

#include <lockstep/amp/optimizer.h>
#include <lockstep/amp/update/lamb_update.h>
#include <lockstep/amp/update/optimizer_list.h>

namespace lockstep::amp {

/// UpdateRule::apply on a span whose master is fp64, in host memory. `state`: the span's own
/// (step_of()). For LAMB the span is one parameter. The bits do not depend on the number of
/// threads. Adam, AdamW and LAMB allocate one array of the span's length.
#define LOCKSTEP_DECLARE(Update) \
  void update_double(const Update& update, const FlatSpan& span, const StepState& state);
LOCKSTEP_FOR_EACH_UPDATE(LOCKSTEP_DECLARE)
LOCKSTEP_DECLARE(LambUpdate)
#undef LOCKSTEP_DECLARE

/// move_average() of such a span.
void average_double(const FlatSpan& span, const StepState& state);

}  // namespace lockstep::amp
