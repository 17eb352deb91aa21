#pragma once

#include <lockstep/amp/impl/update_rule.h>

namespace lockstep::amp {

/// UpdateRule::apply on host memory, for the functors of optimizer_list.h and LambUpdate, whose
/// span is one parameter: blocks that fit the L1 cache, spread over at::parallel_for. `state`: that
/// of the span (step_of()). The bits depend neither on the number of threads nor on the SIMD width.
/// With an fp64 master Adam, AdamW and LAMB allocate one array of the span's length.
template <typename Update>
void update_on_cpu(const Update& update, const FlatSpan& span, const StepState& state);

}  // namespace lockstep::amp
