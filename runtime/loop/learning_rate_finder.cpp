#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/learning_rate_finder.h>
#include <lockstep/runtime/trainer/impl/kept_training.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {
namespace {

constexpr int64_t kMostSkips = 100;

/// The curve while it grows.
class Ramp {
 public:
  explicit Ramp(const LearningRateSearch& search) : search_(search) {}

  double rate() const {
    const double share =
        static_cast<double>(curve_.rates.size()) / static_cast<double>(search_.updates() - 1);
    return search_.lowest() * std::pow(search_.highest() / search_.lowest(), share);
  }

  /// Takes the loss of an update with rate(). Returns whether the next rate is to be tried.
  bool add(double loss) {
    if (!std::isfinite(loss)) {
      return false;
    }
    average_ = search_.smoothing() * average_ + (1.0 - search_.smoothing()) * loss;
    weight_ *= search_.smoothing();
    const double smoothed = average_ / (1.0 - weight_);
    curve_.rates.push_back(rate());
    curve_.losses.push_back(loss);
    curve_.smoothed.push_back(smoothed);
    if (exceeds(smoothed)) {
      return false;
    }
    lowest_ = std::min(lowest_, smoothed);
    return static_cast<int64_t>(curve_.rates.size()) < search_.updates();
  }

  /// Whether a loss is so far above the lowest one that the search ends. False before add().
  bool exceeds(double loss) const {
    return loss > lowest_ + (search_.stop_factor() - 1.0) * std::abs(lowest_);
  }

  LearningRateCurve finished() {
    const auto first = static_cast<size_t>(search_.skip_first());
    const auto skipped = first + static_cast<size_t>(search_.skip_last());
    const size_t count = curve_.smoothed.size() > skipped ? curve_.smoothed.size() - skipped : 0;
    curve_.candidates = static_cast<int64_t>(count);
    double steepest = 0.0;
    for (size_t i = 0; i < count && count > 1; ++i) {
      // As numpy.gradient: central differences, at the ends of one side.
      const size_t before = first + (i == 0 ? 0 : i - 1);
      const size_t after = first + std::min(i + 1, count - 1);
      const double slope =
          (curve_.smoothed[after] - curve_.smoothed[before]) / static_cast<double>(after - before);
      if (slope < steepest) {
        steepest = slope;
        curve_.suggestion = curve_.rates[first + i];
      }
    }
    return std::move(curve_);
  }

 private:
  const LearningRateSearch& search_;
  LearningRateCurve curve_;
  double average_ = 0.0;
  double weight_ = 1.0;  // of the average's start
  double lowest_ = std::numeric_limits<double>::infinity();
};

}  // namespace

void LearningRateSearch::validate() const {
  LOCKSTEP_CHECK(lowest_ > 0.0 && lowest_ < highest_ && std::isfinite(highest_),
                 "LearningRateSearch: lowest must be above 0 and below highest, they are ", lowest_,
                 " and ", highest_);
  LOCKSTEP_CHECK(updates_ >= 2, "LearningRateSearch.updates must be >= 2, is ", updates_);
  LOCKSTEP_CHECK(smoothing_ >= 0.0 && smoothing_ < 1.0,
                 "LearningRateSearch.smoothing must be >= 0 and below 1, is ", smoothing_);
  LOCKSTEP_CHECK(stop_factor_ > 1.0, "LearningRateSearch.stop_factor must be > 1, is ",
                 stop_factor_);
  LOCKSTEP_CHECK(skip_first_ >= 0 && skip_last_ >= 0,
                 "LearningRateSearch.skip_first and skip_last must be >= 0, are ", skip_first_,
                 " and ", skip_last_);
}

std::string LearningRateCurve::text() const {
  if (rates.empty()) {
    return "no learning rate had a finite loss";
  }
  const std::string range =
      c10::str(rates.size(), " rates from ", rates.front(), " to ", rates.back());
  if (suggestion) {
    return c10::str("suggested learning rate ", *suggestion, ", of ", range);
  }
  return c10::str(
      candidates < 2 ? "too few rates for a suggestion: " : "the loss falls nowhere among ", range);
}

namespace detail {

LearningRateCurve search_learning_rate(Trainer& trainer, const LearningRateSearch& search,
                                       const std::function<void(const TakeReport&)>& run,
                                       const std::function<void()>& rewind) {
  search.validate();
  KeptTraining kept(trainer.impl(), "find_learning_rate");
  Ramp ramp(search);
  int64_t skips = 0;
  LOCKSTEP_CHECK(kept.set_learning_rate(ramp.rate()),
                 "find_learning_rate: the schedule's factor is 0 after update ", trainer.updates(),
                 "; search before the run, or with another schedule");
  const auto take = [&](const StepReport& report) {
    if (!report.closes_update()) {
      return true;
    }
    const double loss = report.mean_loss();
    const bool diverged = report.skipped() && ramp.exceeds(loss);
    const bool repeats = report.skipped() && std::isfinite(loss) && !diverged && skips < kMostSkips;
    skips += repeats ? 1 : 0;
    const bool goes_on = repeats || (ramp.add(loss) && !diverged);
    return goes_on && kept.set_learning_rate(ramp.rate()) && !trainer.stop_requested();
  };
  try {
    run(take);
  } catch (const CommunicationError&) {
    kept.forget();
    throw;
  } catch (...) {
    rewind();
    throw;
  }
  rewind();
  kept.give_back();
  return ramp.finished();
}

}  // namespace detail
}  // namespace lockstep
