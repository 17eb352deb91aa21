#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/content.h>
#include <lockstep/checkpointing/snapshot/impl/tensor_load.h>
#include <lockstep/checkpointing/snapshot/snapshot.h>
#include <lockstep/runtime/data/impl/state_archive.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/saving/impl/loop_state.h>
#include <lockstep/runtime/saving/impl/snapshot_search.h>
#include <lockstep/runtime/step/impl/plateau.h>
#include <lockstep/runtime/step/impl/step.h>
#include <lockstep/runtime/step/impl/training_storage.h>
#include <lockstep/runtime/storage/impl/state_copy.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// The objects that hold the state of a run; owned by the Trainer.
struct TrainingParts {
  Runtime& runtime;
  TrainingStorage& storage;
  std::vector<ModelTensor> buffers;
  Step& step;
  LoopState& loop;
  Plateau* plateau;           // or null
  std::string precision;      // described
  std::string configuration;  // of the optimizer and the Trainer, described
  std::function<void()> adopt_trainable;
};

/// A copy of what this rank has of a run's state, in host memory: what a snapshot holds, except the
/// positions of loaders.
struct StateInMemory {
  std::vector<StateCopy> named;  // one for each of TrainingState::visits()
  std::optional<Plateau> plateau;
  std::vector<at::Tensor> arrays;  // of the arena
  std::vector<at::Tensor> scalers, random;
  std::map<std::string, at::Tensor> loop;
};

/// Everything that a run needs to go on bit for bit, as the content of a snapshot. Sections:
/// - model: fp32 weights under PyTorch's names (the masters, or half weights widened; the fp32
///   values that frozen ones were given), each tied weight once, and buffers
/// - optimizer: "parameter.kind", see StateArchive; averages as "parameter.ema" and
///   "buffer.ema"
/// - trainer: counters, loss scale and its counters, learning rates
/// - data: where the loaders are
/// - random, state: each rank's own, the state of its random numbers and of the loop's variables
/// - local: with LocalUpdates, each rank's own weights ("parameter.local") and moments. model then
///   has the weights at the start of the round, and optimizer the moments of rank 0 and the outer
///   momentum
/// - texts: precision, configuration, versions, and the names of frozen parameters
/// Ranks: every rank makes the same calls. content() is collective.
class TrainingState {
 public:
  explicit TrainingState(TrainingParts parts) : parts_(std::move(parts)) {}

  /// Throws Error (exit code snapshot) that names the first weight or buffer that no snapshot can
  /// hold. Local.
  void require_storable() const;

  /// The state, to be saved. Throws the same Error on every rank if ranks hold different bits (exit
  /// code diverged), or if a rank's state cannot be saved.
  snapshot::Content content();

  /// Copies the state to host memory. Collective. If a rank cannot read its state, throws the same
  /// Error, which begins with `doing`, on every rank.
  StateInMemory keep(const Agreement& agreement, const std::string& doing);
  /// Restores that state bit for bit; the same parameters must be trainable. May be
  /// repeated. Local; with shared weights the ranks of a node wait for each other.
  void give_back(StateInMemory& kept);

  /// Makes those parameters trainable that were so in the saved run. Returns a function that undoes
  /// this. Collective.
  std::function<void()> match_trainable(const Snapshot& saved);
  /// Throws Error (exit code snapshot) that lists every name that is missing, left over or of other
  /// sizes, or (exit code data) says why a loader cannot go on. Changes nothing.
  void check(const Snapshot& saved);
  /// Loads a snapshot that passed check(). Returns the differences from the run that saved it, one
  /// line each.
  std::vector<std::string> load(const Snapshot& saved);
  /// What Trainer::load_weights() loads of the weights and buffers. Throws Error if they do not
  /// match. Changes nothing.
  snapshot::TensorLoad match(const OpenedWeights& source,
                             const snapshot::LoadOptions& options) const;
  /// Loads them bucket by bucket, and averages. `optimizer`: the section of a snapshot from which
  /// these may come, or null. Adds to `notes` which start anew. With shared weights, a collective
  /// must come before and after.
  void load_weights(const snapshot::TensorLoad& load, const snapshot::SnapshotSection* optimizer,
                    std::vector<std::string>& notes);

 private:
  void visit_weights(StateArchive& archive);
  void visit_scaler(StateArchive& archive);
  void visit_section(const std::string& section, StateArchive& archive);
  void visit_untrained(StateArchive& archive);
  /// Visits of what is not in the arrays of the arena. Local.
  std::vector<StateVisit> visits();
  /// The states of the loss scalers as bytes, also the counters of one that is disabled.
  std::vector<at::Tensor> scalers();
  /// Adds what each rank has of its own.
  void add_own(snapshot::Content& content);
  void load_random(const Snapshot& saved, std::vector<std::string>& notes);

  const Trainable& trainable() const { return parts_.storage.trainable(); }
  Arena& arena() const { return parts_.storage.arena(); }
  ExactValues& exact() const { return parts_.storage.exact(); }

  TrainingParts parts_;
  bool with_scaler_ = true;
};

}  // namespace lockstep::detail
