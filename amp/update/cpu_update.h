#pragma once

#include <lockstep/amp/optimizer.h>

namespace lockstep::amp {

/// UpdateRule::apply on host memory, for the functors of optimizer_list.h: blocks that fit the L1
/// cache, spread over at::parallel_for. The bits depend neither on the number of threads nor on the
/// SIMD width.
template <typename Update>
void update_on_cpu(const Update& update, const FlatSpan& span, const StepState& state);

}  // namespace lockstep::amp
