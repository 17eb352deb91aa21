#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/metric_value.h>
#include <lockstep/runtime/reduce_on_plateau.h>
#include <lockstep/runtime/step/impl/learning_rates.h>

#include <limits>

namespace lockstep::detail {

/// Applies a ReduceOnPlateau and holds its state. Threads: one. Ranks: local.
class Plateau {
 public:
  explicit Plateau(const ReduceOnPlateau& rule) : rule_(rule) {}

  /// Takes one metric after `update` updates; returns true if it lowered a rate. NaN is no
  /// improvement. A resumed loop may pass the metric of the saved epoch again: the first metric
  /// after a resume does not count if the saved run took one after the same update.
  bool step(const MetricValue& metric, int64_t update, LearningRates& rates);
  void visit_state(StateArchive& archive);
  /// For a Trainer without a rule: visits and ignores the state of one in a snapshot.
  static void pass_over(StateArchive& archive);

 private:
  bool improves(double metric, bool prefers_lower) const;
  bool lower(LearningRates& rates) const;

  ReduceOnPlateau rule_;
  double best_ = std::numeric_limits<double>::infinity();  // none yet
  int64_t bad_ = 0;                                        // metrics without improvement in a row
  int64_t cooling_ = 0;                                    // metrics to come that do not count
  int64_t update_ = -1;                                    // updates before the last metric
  bool loaded_ = false;                                    // loaded, and no metric came since
};

}  // namespace lockstep::detail
