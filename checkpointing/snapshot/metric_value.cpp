#include <lockstep/checkpointing/snapshot/metric_value.h>
#include <lockstep/collectives/check.h>

namespace lockstep::snapshot {

bool MetricValue::prefers_lower(std::optional<bool> option, const std::string& name) const {
  const bool prefers = lower_is_better.value_or(option.value_or(true));
  LOCKSTEP_CHECK(prefers == option.value_or(prefers), "the ", prefers ? "lowest" : "highest",
                 " value of this metric is the best, but ", name, " says the ",
                 prefers ? "highest" : "lowest", "; leave that option out");
  return prefers;
}

}  // namespace lockstep::snapshot
