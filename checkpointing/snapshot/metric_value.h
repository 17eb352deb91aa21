#pragma once

#include <optional>
#include <string>

namespace lockstep::snapshot {

/// A number that tells how good the weights are, and which of two such numbers is the better one. A
/// plain number converts to it, and so does an Evaluation. Threads and ranks: a plain value.
struct MetricValue {
  double value = 0.0;
  /// Whether the lower of two such numbers is better. Unset: not known.
  std::optional<bool> lower_is_better;

  MetricValue(double value,  // NOLINT(google-explicit-constructor)
              std::optional<bool> lower_is_better = std::nullopt)
      : value(value), lower_is_better(lower_is_better) {}

  /// Whether the lower of two such numbers is better: what the metric says, else what the option
  /// says, else true. `name`: of the option. Throws Error that names the option if it contradicts
  /// the metric.
  bool prefers_lower(std::optional<bool> option, const std::string& name) const;
};

}  // namespace lockstep::snapshot

namespace lockstep {

using snapshot::MetricValue;

}  // namespace lockstep
