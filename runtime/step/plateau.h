#pragma once

#include <lockstep/runtime/reduce_on_plateau.h>
#include <lockstep/runtime/step/learning_rates.h>

namespace lockstep::detail {

/// What a ReduceOnPlateau remembers. Threads: one. Ranks: local.
class Plateau {
 public:
  explicit Plateau(const ReduceOnPlateau& rule);

  /// Takes one metric; returns whether it lowered a rate. NaN is no improvement.
  bool step(double metric, LearningRates& rates);
  void visit_state(StateArchive& archive);
  /// For a Trainer without a rule: reads past what a snapshot has of one.
  static void pass_over(StateArchive& archive);

 private:
  bool improves(double metric) const;
  bool lower(LearningRates& rates) const;

  ReduceOnPlateau rule_;
  double best_;
  int64_t bad_ = 0;      // metrics without improvement in a row
  int64_t cooling_ = 0;  // metrics left that are not counted
};

}  // namespace lockstep::detail
