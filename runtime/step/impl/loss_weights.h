#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/runtime/data/impl/state_archive.h>
#include <lockstep/runtime/loss.h>
#include <lockstep/runtime/step/impl/votes.h>

#include <cstdint>
#include <optional>

namespace lockstep::detail {

/// The kind of the losses (mean or Loss::sum) and the weights of the micro-batches of one window.
/// They give the factor on each packed gradient with which the reduction is the gradient of the
/// mean over all samples of all ranks.
/// Ranks: local; Step exchanges the votes. Threads: one.
class LossWeights {
 public:
  /// `ranks`: the size of the world. `exact`: the reduction is the exact sum of all gradients
  /// (TrainerOptions::reproducible), else their average over ranks.
  LossWeights(bool uneven_data, int64_t accumulate, int ranks, bool exact)
      : uneven_data_(uneven_data), accumulate_(accumulate), ranks_(ranks), exact_(exact) {}

  /// Counts one micro-batch with data. Throws Error if its loss is of another kind than the losses
  /// before it.
  void add(bool is_sum, double weight);
  /// True if ranks must exchange their votes before the window's last backward: for the global
  /// weight, and in the first window for the kind of the losses.
  bool need_exchange() const { return uneven_data_ || kind_is_sum_.value_or(true); }
  /// Writes kind, number and weight of this rank's micro-batches.
  void add_to(Votes& mine) const;
  /// Takes the votes of all ranks. Throws Error if some ranks return a sum and others a mean.
  void take(const Votes& all);

  /// The factor on each gradient when it is packed; the reduction then averages over ranks. With
  /// `exact` the factor on the sum, rounded once.
  double packing_factor() const;
  /// The weight of all micro-batches of all ranks, the divisor of the sum of losses. May be 0.
  double weight_of_window() const;
  /// True if the weight of all micro-batches of all ranks is 0: then there is no update.
  bool nothing_counted() const { return weighted() && weight_of_all_.value_or(1.0) == 0.0; }
  bool rank_has_data() const { return with_data_ > 0; }
  /// True once the ranks agreed that losses are sums.
  bool are_sums() const { return kind_is_sum_.value_or(false); }
  void begin_window();
  void visit_state(StateArchive& archive);

 private:
  bool weighted() const { return are_sums() || uneven_data_; }

  bool uneven_data_;
  int64_t accumulate_;
  int ranks_;
  bool exact_;
  std::optional<bool> kind_is_sum_;  // agreed by all ranks in the first window, then fixed

  // the window
  std::optional<bool> is_sum_;
  int64_t with_data_ = 0;
  double weight_ = 0.0;
  std::optional<double> weight_of_all_;
};

}  // namespace lockstep::detail
