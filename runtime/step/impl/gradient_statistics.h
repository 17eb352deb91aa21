#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/value_summary.h>
#include <lockstep/runtime/step/impl/reducer.h>

#include <string>
#include <vector>

namespace lockstep::detail {

/// The range of one parameter's reduced gradient as it travelled: scaled, in the wire dtype.
struct GradientRange {
  std::string parameter;
  at::ScalarType wire = at::kFloat;
  amp::ValueSummary values;
};

/// The ranges of all parameters, in the buckets' order: one pass over the flat buckets of the last
/// window. If the reducer scatters, only of this rank's part of each parameter.
std::vector<GradientRange> gradient_ranges(const Reducer& reducer);

/// "a.weight, b.bias": the parameters whose reduced gradient is not finite on any rank. The same on
/// every rank. Collective on `control`: a reducer that scatters, or of one rank, differs.
std::string non_finite_names(const Reducer& reducer, const Communicator& control);

}  // namespace lockstep::detail
