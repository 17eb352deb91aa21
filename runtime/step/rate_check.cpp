#include <lockstep/runtime/step/impl/rate_check.h>
#include <lockstep/runtime/storage/impl/replicas.h>

#include <sstream>

namespace lockstep::detail {

/// The digest has 16 bits, so that sums of its square are exact. `update` is its seed, so that
/// different rates differ in the next window if they collide in this one.
void RateCheck::add_to(Votes& mine, const LearningRates& rates, const amp::PlannedFactors& planned,
                       int64_t update) {
  rates_ = rates.all();
  for (const float factor : planned.factors) {
    rates_.push_back(factor);
  }
  const uint64_t digest =
      digest_of(rates_.data(), rates_.size() * sizeof(double), static_cast<uint64_t>(update));
  mine.rates = static_cast<double>(digest & 0xffffU);
  mine.rates_squared = mine.rates * mine.rates;
}

bool RateCheck::equal(const Votes& all, int ranks) const {
  return all.rates * all.rates == all.rates_squared * ranks;
}

void RateCheck::raise(HostActs acts, const Agreement& agreement) const {
  std::ostringstream mine;
  mine.precision(17);
  for (size_t i = 0; i < rates_.size(); ++i) {
    mine << (i + 2 == rates_.size() ? "times the schedule's " : "") << rates_[i] << ' ';
  }
  require_same_text(acts == HostActs::one_window_late
                        ? "the learning rate of the last update, which was made (resume from a "
                          "snapshot before it),"
                        : "the learning rate (Trainer::set_learning_rate, reduce_on_plateau, a "
                          "ScheduleFunction, options of a torch::optim optimizer)",
                    mine.str(), agreement);
}

}  // namespace lockstep::detail
