#pragma once

#include <lockstep/amp/optimizer.h>

namespace lockstep::amp {

/// Moves `span.average`, if there is one, towards the weights as they are: what an UpdateRule does
/// in passing, for weights that are moved elsewhere or not at all. Host or device memory.
void move_average(const FlatSpan& span);

}  // namespace lockstep::amp
