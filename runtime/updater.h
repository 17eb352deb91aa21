#pragma once

#include <lockstep/amp/optimizer.h>
#include <lockstep/runtime/arena.h>
#include <lockstep/runtime/decisions.h>
#include <lockstep/runtime/learning_rates.h>
#include <lockstep/runtime/reducer.h>
#include <lockstep/runtime/state_archive.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep {

struct UpdaterOptions {
  /// bf16 weights without masters are rounded randomly.
  bool rounds_randomly = false;
  /// Of all random rounding; the same on every rank.
  uint64_t seed = 0;
  /// What an update adds of the weights to their average: 1 - decay.
  float average_rest = 0.0F;
  /// Updates are counted for each parameter apart, since some may go without.
  bool counts_by_parameter = false;
};

/// Step 5 of the order: one pass per bucket over reduced gradients, masters, moments and weights,
/// of this rank's share where the arena is sharded.
class Updater {
 public:
  virtual ~Updater() = default;
  /// Updates the parameters for which `used` is 1 (all, if it is empty); averages move in any case.
  /// Nothing moves where decisions.step() says skip. Collective if the arena is sharded. A
  /// parameter that is not used keeps its count of updates too, as in torch.optim.
  virtual void apply(const Reducer& reducer, const Decisions& decisions,
                     const std::vector<char>& used) = 0;
  /// The state of each parameter as "name.kind"; what this rank keeps of it, where it is spread.
  virtual void visit_state(const Reducer& reducer, StateArchive& archive) = 0;
  /// Options that only the optimizer itself knows, to be compared between ranks; empty for a fused
  /// one, whose OptimizerSpec says all.
  virtual std::string describe() const { return {}; }
  /// Bytes of moments in the arena; those inside a torch::optim optimizer are not counted.
  virtual int64_t moment_bytes() const = 0;
  /// What updates read.
  virtual LearningRates& learning_rates() = 0;
  /// Takes over what was written to the optimizer's own options since the last update: only a
  /// torch::optim optimizer has such. Local. Throws Error for a rate that cannot be.
  virtual void take_edited_rates() {}

  /// The fused rules of `spec`, or for TorchOptimizer that optimizer on the masters.
  static std::unique_ptr<Updater> make(const OptimizerSpec& spec, const Reducer& reducer,
                                       Arena& arena, const UpdaterOptions& options);
};

/// The TorchOptimizer path, in a file of its own for its headers' sake; null for a fused optimizer.
std::unique_ptr<Updater> make_torch_updater(const OptimizerSpec& spec, const Reducer& reducer,
                                            const Arena& arena, const UpdaterOptions& options);

/// Bucket b's arrays of this rank's share, all but the moments.
amp::FlatSpan span_of(const Reducer& reducer, const Arena& arena, size_t bucket,
                      const UpdaterOptions& options);

}  // namespace lockstep
