#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>
#include <lockstep/amp/optimizer.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/runtime/memory_use.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/step/impl/activation_planning.h>
#include <lockstep/runtime/step/impl/averaged_buffers.h>
#include <lockstep/runtime/step/impl/frozen_watch.h>
#include <lockstep/runtime/step/impl/local_rounds.h>
#include <lockstep/runtime/step/impl/model_watch.h>
#include <lockstep/runtime/step/impl/reducer.h>
#include <lockstep/runtime/step/impl/replica_check.h>
#include <lockstep/runtime/step/impl/trainable.h>
#include <lockstep/runtime/step/impl/updater.h>
#include <lockstep/runtime/step/impl/written_weights.h>
#include <lockstep/runtime/storage/impl/arena.h>
#include <lockstep/runtime/storage/impl/exact_values.h>
#include <lockstep/runtime/trainer_options.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// The memory of a training run: weights and masters in the arena, gradients in the reducer's
/// buckets, moments in the updater; all have the same layout (docs/architecture.md, Storage).
/// Ranks: the constructor and adopt_...() are collective; if one rank fails, all throw. Threads:
/// one.
class TrainingStorage {
 public:
  using Named = std::vector<std::pair<std::string, at::Tensor>>;

  /// Copies rank 0's weights to all ranks and moves the parameters of `model` into the arena.
  /// `devices`: the communicator of the gradients. `activations`: for advice if memory runs out.
  TrainingStorage(const Runtime& runtime, const Model& model,
                  std::shared_ptr<const OptimizerSpec> spec, const TrainerOptions& options,
                  Trainable trainable, const Communicator& devices, const Agreement& agreement,
                  const ActivationPlanning& activations);
  TrainingStorage(const TrainingStorage&) = delete;
  TrainingStorage& operator=(const TrainingStorage&) = delete;

  const Model& model() const { return model_; }
  const Trainable& trainable() const { return trainable_; }
  Arena& arena() const { return *arena_; }
  ExactValues& exact() { return exact_; }
  const ExactValues& exact() const { return exact_; }
  Reducer& reducer() const { return *reducer_; }
  Updater& updater() const { return *updater_; }
  ModelWatch& watch() const { return *watch_; }
  FrozenWatch& frozen_watch() const { return *frozen_watch_; }
  ReplicaCheck& replicas() const { return *replicas_; }
  WrittenWeights& written() const { return *written_; }
  /// Empty without TrainerOptions::ema.
  AveragedBuffers& averaged_buffers() const { return *averaged_buffers_; }
  const OptimizerSpec& optimizer() const { return *spec_; }
  /// Null without TrainerOptions::local_updates.
  LocalRounds* rounds() const { return rounds_.get(); }

  /// Makes the masters equal to the weights of the model, and the weights views of the arena again.
  void adopt_weights();
  /// Follows changes of requires_grad. Returns true if there were any: then all is in new memory,
  /// with the state of parameters that stay. Call it between windows.
  bool adopt_trainable();

  /// The Error if this rank's window allows no update: missing gradients against `policy`, a
  /// parameter that left the arena, a frozen one that was written. Call it after
  /// Reducer::launch_rest(). Local.
  std::optional<Error> problem_of_window(UnusedParameters policy) const;

  /// Throws Error if a parameter left the arena, came to the model, or is frozen and was written.
  void require_unchanged(bool window_begins) const;
  /// The Error of the first parameter that left the arena, or is frozen and was written.
  std::optional<Error> change_of_model() const;

  /// Views of flat arrays that are laid out as the buckets are, by parameter name.
  Named named(const std::vector<at::Tensor>& flats) const;
  /// The memory of the parts that exist by now.
  ArenaMemory memory() const;
  /// Bytes of the device through which states on the host pass: two buckets'.
  int64_t staging_bytes() const;
  /// Ends TrainerOptions::offload_states: everything moves to new memory, with the same bits.
  /// Collective; call it between windows.
  void take_states_to_device();
  /// A table of what uses memory, for an Error with exit code out_of_memory.
  std::string out_of_memory_advice() const;
  /// The Error of a micro-batch that failed, with advice if memory ran out or a device failed.
  Error explained(const Error& error, int64_t micro_batch) const;

 private:
  using Values = std::map<std::string, at::Tensor>;

  void explained(const std::function<void()>& body) const;
  std::vector<BucketPlan> plans_for(const std::vector<ModelTensor>& parameters) const;
  std::vector<at::Tensor> allocate_leaf_sums(const std::vector<BucketPlan>& plans) const;
  std::shared_ptr<NodeMemory> node_memory(const std::vector<BucketPlan>& plans) const;
  Arena new_arena(const std::vector<BucketPlan>& plans, std::shared_ptr<NodeMemory> node) const;
  std::unique_ptr<Updater> new_updater();
  void refresh_model() const;
  void make_checks();
  void move_into_new_layout(const Trainable& now);
  Values freeze_and_thaw(const Trainable& now, const Values& masters);

  const Runtime& runtime_;
  Model model_;
  std::shared_ptr<const OptimizerSpec> spec_;
  TrainerOptions options_;
  Trainable trainable_;
  std::string viewed_;  // names of trained parameters that had aliases at construction
  Communicator devices_;
  Communicator gradient_ranks_;  // that reduce gradients: with local_updates this rank alone
  Agreement agreement_;
  const ActivationPlanning& activations_;
  std::unique_ptr<Arena> arena_;
  ExactValues exact_;
  std::unique_ptr<AveragedBuffers> averaged_buffers_ = std::make_unique<AveragedBuffers>();
  std::unique_ptr<Reducer> reducer_;
  std::unique_ptr<Updater> updater_;
  std::unique_ptr<LocalRounds> rounds_;
  std::unique_ptr<ModelWatch> watch_;
  std::unique_ptr<FrozenWatch> frozen_watch_;
  std::unique_ptr<WrittenWeights> written_;
  std::unique_ptr<ReplicaCheck> replicas_;
};

}  // namespace lockstep::detail
