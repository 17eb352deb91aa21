#include <ATen/ops/empty.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/device_watch.h>
#include <lockstep/runtime/step/impl/learning_rates.h>

#include <algorithm>
#include <cmath>

namespace lockstep::detail {

LearningRates::LearningRates(std::vector<double> configured, c10::Device device)
    : configured_(std::move(configured)), rates_(configured_) {
  on_device_ = at::empty({groups()}, at::TensorOptions().dtype(at::kDouble).device(device));
  upload();
}

double LearningRates::of(int group) const {
  require_group(group);
  return rates_[static_cast<size_t>(group)];
}

void LearningRates::set(double rate, std::optional<int> group) {
  LOCKSTEP_CHECK(std::isfinite(rate) && rate >= 0.0, "set_learning_rate: the rate is ", rate,
                 ", it must be finite and not negative");
  if (group) {
    require_group(*group);
    rates_[static_cast<size_t>(*group)] = rate;
  } else {
    std::fill(rates_.begin(), rates_.end(), rate);
  }
  upload();
}

void LearningRates::require_group(int group) const {
  LOCKSTEP_CHECK(group >= 0 && group < groups(), "learning rate: there is no group ", group,
                 " of the optimizer, only 0 to ", groups() - 1);
}

/// Copies the rates in stream order: the device uses them for updates that it gets from now on.
void LearningRates::upload() {
  const at::Tensor host = host_memory_for(on_device_.device(), {groups()}, at::kDouble);
  std::copy(rates_.begin(), rates_.end(), host.mutable_data_ptr<double>());
  on_device_.copy_(host, /*non_blocking=*/!on_device_.is_cpu());
}

void LearningRates::visit_state(StateArchive& archive) {
  note_.clear();
  const auto name = [](size_t group) { return c10::str("learning_rate.", group); };
  for (size_t g = 0; archive.saving() ? g < rates_.size() : archive.has(name(g)); ++g) {
    const bool exists = g < rates_.size();
    double rate = exists ? rates_[g] : 0.0;
    double configured = exists ? configured_[g] : 0.0;
    archive.real(name(g), rate);
    archive.real(name(g) + "_configured", configured);
    if (!archive.loading() || !exists) {
      continue;
    }
    if (configured == configured_[g]) {
      rates_[g] = rate;
    } else if (rate != rates_[g]) {
      note_ += c10::str(note_.empty() ? "" : "; ", "the learning rate of group ", g, " was ", rate,
                        ", is now ", rates_[g], ", as this program configures it");
    }
  }
  if (archive.loading()) {
    upload();
  }
}

}  // namespace lockstep::detail
