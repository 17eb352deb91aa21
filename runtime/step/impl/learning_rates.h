#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/runtime/data/impl/state_archive.h>

#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// The learning rates of the groups without the schedule's factor: those that the optimizer was
/// configured with, until set() changes them. Threads: one. Ranks: local; Step compares them.
class LearningRates {
 public:
  /// `device`: where the updates read them.
  LearningRates(std::vector<double> configured, c10::Device device);

  int groups() const { return static_cast<int>(rates_.size()); }
  /// Throws Error where there is no such group.
  double of(int group) const;
  /// Sets the rate of all groups, or of one, from the next update on. Throws Error for a rate that
  /// is negative, infinite or NaN, and where there is no such group.
  void set(double rate, std::optional<int> group = std::nullopt);
  /// fp64, one element for each group, always in the same memory.
  const at::Tensor& on_device() const { return on_device_; }
  const std::vector<double>& all() const { return rates_; }

  /// Visits present and configured rates. A group that this program configures with another rate
  /// than the saved run did keeps this program's rate; note() then says so.
  void visit_state(StateArchive& archive);
  const std::string& note() const { return note_; }

 private:
  void require_group(int group) const;
  void upload();

  std::vector<double> configured_;
  std::vector<double> rates_;
  at::Tensor on_device_;
  std::string note_;
};

}  // namespace lockstep::detail
