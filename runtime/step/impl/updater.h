#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/optimizer.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/runtime/data/impl/state_archive.h>
#include <lockstep/runtime/step/impl/decisions.h>
#include <lockstep/runtime/step/impl/learning_rates.h>
#include <lockstep/runtime/step/impl/reducer.h>
#include <lockstep/runtime/storage/impl/arena.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::amp {
struct FlatSpan;
}

namespace lockstep::detail {

struct UpdaterOptions {
  /// bf16 weights without masters use stochastic rounding.
  bool rounds_randomly = false;
  /// Seed of all stochastic rounding; the same on every rank.
  uint64_t seed = 0;
  /// Weight of the new weights in their moving average: 1 - decay.
  double average_rest = 0.0;
  /// Limit of each element of the gradient of an fp64 parameter.
  double clip_value = std::numeric_limits<double>::infinity();
  /// Updates are counted per parameter, since some parameters may miss updates.
  bool counts_by_parameter = false;
  /// Moments are in host memory, and travel to the device for each update; the arena's states are
  /// there, too (Arena::Options::offloads).
  bool offloads = false;
};

/// Updates the weights: one pass per bucket over reduced gradients, masters, moments and weights.
/// If the arena is sharded, over this rank's shard.
class Updater {
 public:
  virtual ~Updater() = default;
  /// Updates the parameters for which `used` is 1; all parameters if `used` is empty. Averages are
  /// updated in any case. Changes nothing if decisions.step() says skip. For an unused parameter
  /// the count of updates does not change either, as in torch.optim. Collective. If a torch::optim
  /// optimizer throws on one rank, every rank throws. `hosts`: the hosts of all ranks.
  void update(const Reducer& reducer, const Decisions& decisions, const std::vector<char>& used,
              const Agreement& hosts);
  /// Visits the state of each parameter as "name.kind". Where state is sharded, visits this rank's
  /// shard.
  virtual void visit_state(const Reducer& reducer, StateArchive& archive) = 0;
  /// Options that only the optimizer object knows, as text to compare between ranks. Empty for a
  /// fused optimizer, whose OptimizerSpec contains all options.
  virtual std::string describe() const { return {}; }
  /// Bytes of moments in the arena. Moments inside a torch::optim optimizer are not counted.
  virtual int64_t moment_bytes() const = 0;
  /// The learning rates that updates read.
  virtual LearningRates& learning_rates() = 0;
  /// Takes over learning rates that the program wrote to the optimizer's options since the last
  /// update. Only a torch::optim optimizer has such options. Local. Throws Error for an invalid
  /// rate.
  virtual void take_edited_rates() {}
  /// Writes the learning rates, with the schedule's last factor, to the optimizer's options.
  virtual void show_rates() {}
  /// The schedule's factor in the shown rates; 1 if none are shown.
  virtual double shown_factor() const { return 1.0; }
  virtual void set_shown_factor(double) {}
  /// Saves the learning rates, including edited ones, or loads and shows them.
  void visit_rates(StateArchive& archive);

  /// Makes an updater with the rules of a FusedOptimizer, or with a TorchOptimizer on the masters.
  static std::unique_ptr<Updater> make(const OptimizerSpec& spec, const Reducer& reducer,
                                       Arena& arena, const UpdaterOptions& options);

 protected:
  /// update() of this rank. With a sharded arena, collective unless may_throw().
  virtual void apply(const Reducer& reducer, const Decisions& decisions,
                     const std::vector<char>& used) = 0;
  /// True for a torch::optim optimizer, which may find no memory for its state on one rank alone:
  /// apply() is then local, and share_weights() is the collective half of a sharded update.
  virtual bool may_throw() const { return false; }
  virtual void share_weights() {}
};

/// For a TorchOptimizer. In a file of its own because of the headers that it includes.
std::unique_ptr<Updater> make_torch_updater(const TorchOptimizer& spec, const Reducer& reducer,
                                            Arena& arena, const UpdaterOptions& options);

/// The flat arrays of this rank's shard of a bucket, except the moments.
amp::FlatSpan span_of(const Reducer& reducer, const Arena& arena, size_t bucket,
                      const UpdaterOptions& options);

}  // namespace lockstep::detail
