#include <lockstep/runtime/step/impl/gradient_statistics.h>

#include <algorithm>

namespace lockstep::detail {

std::vector<GradientRange> gradient_ranges(const Reducer& reducer) {
  std::vector<GradientRange> ranges;
  for (size_t b = 0; b < reducer.size(); ++b) {
    const BucketPlan& plan = reducer.plans()[b];
    const Shard own = reducer.own_shard(b);
    for (const Slot& slot : plan.slots) {
      const Shard::Part part = own.part_of(slot);
      ranges.push_back(
          {reducer.parameters()[static_cast<size_t>(slot.parameter)].name, plan.wire_dtype,
           amp::summarise(reducer.gradient(b, own).narrow(0, part.in_shard, part.numel))});
    }
  }
  return ranges;
}

std::string non_finite_names(const Reducer& reducer, const Communicator& control) {
  const std::vector<GradientRange> ranges = gradient_ranges(reducer);
  std::string found;  // '1' for each parameter that is not finite
  for (const GradientRange& range : ranges) {
    found += range.values.finite() ? '0' : '1';
  }
  for (const std::string& theirs : control.all_gather_bytes(found)) {
    std::transform(found.begin(), found.end(), theirs.begin(), found.begin(),
                   [](char a, char b) { return std::max(a, b); });
  }
  std::string names;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (found[i] == '1') {
      names += (names.empty() ? "" : ", ") + ranges[i].parameter;
    }
  }
  return names;
}

}  // namespace lockstep::detail
