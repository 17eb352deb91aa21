#include <lockstep/runtime/progress.h>
#include <lockstep/runtime/step/gradient_statistics.h>
#include <lockstep/runtime/table.h>

namespace lockstep::detail {

std::vector<GradientRange> gradient_ranges(const Reducer& reducer) {
  std::vector<GradientRange> ranges;
  for (size_t b = 0; b < reducer.size(); ++b) {
    const BucketPlan& plan = reducer.plans()[b];
    for (const Slot& slot : plan.slots) {
      ranges.push_back({reducer.parameters()[static_cast<size_t>(slot.parameter)].name,
                        plan.wire_dtype,
                        amp::summarise(reducer.wire(b).narrow(0, slot.offset, slot.numel))});
    }
  }
  return ranges;
}

std::string gradient_table(const std::vector<GradientRange>& ranges) {
  Table table(
      {"parameter", "elements", "absmax", "headroom bits", "zeros %", "tiny %", "inf", "NaN"});
  for (const GradientRange& range : ranges) {
    const amp::ValueSummary& values = range.values;
    const auto percent = [&](int64_t count) {
      return format_number(values.numel > 0 ? 100.0 * static_cast<double>(count) /
                                                  static_cast<double>(values.numel)
                                            : 0.0);
    };
    table.row({range.parameter, std::to_string(values.numel), format_number(values.absmax),
               format_number(values.headroom_bits(range.wire)), percent(values.zeros),
               percent(values.tiny), std::to_string(values.infs), std::to_string(values.nans)});
  }
  return table.text();
}

std::string non_finite_names(const Reducer& reducer) {
  std::string names;
  for (const GradientRange& range : gradient_ranges(reducer)) {
    if (!range.values.finite()) {
      names += (names.empty() ? "" : ", ") + range.parameter;
    }
  }
  return names;
}

}  // namespace lockstep::detail
