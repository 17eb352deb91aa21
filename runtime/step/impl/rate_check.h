#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/runtime/step/impl/decisions.h>
#include <lockstep/runtime/step/impl/learning_rates.h>
#include <lockstep/runtime/step/impl/votes.h>

#include <cstdint>
#include <vector>

namespace lockstep::detail {

/// Compares the learning rates of all ranks at each update, as a digest in the ranks' votes.
/// Ranks: the same calls on every rank. Threads: one.
class RateCheck {
 public:
  /// Writes the digest of the rates that this rank's update number `update` uses.
  void add_to(Votes& mine, const LearningRates& rates, const amp::PlannedFactors& planned,
              int64_t update);
  /// True if all ranks wrote the same digest.
  bool equal(const Votes& all, int ranks) const;
  /// After equal() was false: throws the same Error, with the rates of every rank, on every rank.
  /// Collective.
  void raise(HostActs acts, const Agreement& agreement) const;

 private:
  std::vector<double> rates_;  // by group, then the schedule's factors
};

}  // namespace lockstep::detail
