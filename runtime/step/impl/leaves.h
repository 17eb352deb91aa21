#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/decision.h>
#include <lockstep/amp/model.h>
#include <lockstep/amp/optimizer.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/runtime/loss.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/step/impl/leaf_buffers.h>
#include <lockstep/runtime/trainer_options.h>

#include <cstdint>
#include <vector>

namespace lockstep::detail {

/// The options as a rank of `ranks` runs them: with TrainerOptions::reproducible, accumulate is
/// this rank's share of the leaves. Throws Error if the ranks do not divide the leaves.
TrainerOptions with_own_leaves(TrainerOptions options, int ranks);
/// The options as they are described: with reproducible the same text on any number of ranks.
TrainerOptions with_all_leaves(TrainerOptions options, int ranks);
/// With reproducible: throws Error, with the reason, for options, models and optimizers that cannot
/// give the same bits on any number of ranks.
void require_reproducible(const TrainerOptions& options, const Runtime& runtime, const Model& model,
                          const OptimizerSpec& optimizer);

/// With TrainerOptions::reproducible: makes random numbers and buffers depend on the leaf (a
/// micro-batch of the global batch), not on the rank that runs it. Otherwise all calls do nothing.
/// Ranks: merge_buffers() is collective, all else local. Threads: one.
class Leaves {
 public:
  Leaves(const TrainerOptions& options, uint64_t seed, const Communicator& communicator,
         std::vector<ModelTensor> buffers);

  bool on() const { return on_; }
  int64_t count() const { return own_ * ranks_; }

  /// Call it before the forward of a micro-batch: seeds the generators; saves buffers in the first.
  void begin(const amp::Decision& known, int64_t micro_batch);
  /// Call it after the backward of a micro-batch.
  void end(const amp::Decision& known, int64_t micro_batch);
  /// Throws Error for a weight of Loss::sum that cannot be added exactly.
  void require_exact(const Loss& loss) const;
  void merge_buffers();
  /// Ends the window, also after an error. Seeds the generators for the training loop: what it
  /// draws before its next step belongs to the first leaf of the next window.
  void end_window(const amp::Decision& known);

 private:
  enum class Site { loop, closure };
  void seed(const amp::Decision& known, int64_t micro_batch, Site site) const;

  bool on_;
  uint64_t seed_;
  int64_t own_;  // leaves of this rank
  int rank_;
  int ranks_;
  LeafBuffers buffers_;
};

}  // namespace lockstep::detail
