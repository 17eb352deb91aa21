#pragma once

#include <lockstep/amp/optimizer.h>

namespace lockstep::amp {

/// Throws Error naming the array of `span` that does not fit FlatSpan's description.
void check_span(const FlatSpan& span, int moments);

/// The array that the optimizer moves: the master, or the weight where there is none.
const at::Tensor& updated_array(const FlatSpan& span);

}  // namespace lockstep::amp
