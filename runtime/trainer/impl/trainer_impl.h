#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/impl/device_watch.h>
#include <lockstep/runtime/saving/impl/saving.h>
#include <lockstep/runtime/step/impl/activation_planning.h>
#include <lockstep/runtime/step/impl/plateau.h>
#include <lockstep/runtime/step/impl/step.h>
#include <lockstep/runtime/step/impl/training_storage.h>
#include <lockstep/runtime/trainer/impl/captured_steps.h>
#include <lockstep/runtime/trainer/impl/digest_log.h>
#include <lockstep/runtime/trainer/impl/memory_planning.h>
#include <lockstep/runtime/trainer/impl/straggler_watch.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// The parts of a Trainer, and what several of its calls do with them. Trainer::impl() gives it to
/// lockstep's other libraries. Ranks and threads: as Trainer.
struct TrainerImpl {
  struct Parts;
  /// Without `acts`, `acts` and `make_graph` follow from the device of `runtime`; tests give
  /// others. `devices`: the communicator of the gradients, by default that of `runtime`. If one
  /// rank cannot make a part, every rank throws.
  TrainerImpl(Runtime& runtime, const Model& model, const OptimizerSpec& spec,
              const TrainerOptions& options, std::optional<HostActs> acts = std::nullopt,
              MakeStepGraph make_graph = nullptr,
              std::optional<Communicator> devices = std::nullopt);

  /// Calls `body`, in which all ranks take part. If this rank has left a step with its peers, it
  /// throws their common Error. If this rank's device fails outside of what ranks agree on, the
  /// others are told.
  template <typename Body>
  auto together(const Body& body) const -> decltype(body()) {
    try {
      step->follow_peers();
      return body();
    } catch (const std::exception&) {
      leave_if_device_failed(std::current_exception());
      step->follow_peers();
      throw;
    }
  }
  /// Throws Error in the closure of a step, which only computes the loss.
  void require_outside_closure(const char* call) const;
  void require_between_windows(const char* call) const;
  void require_no_graph() const;
  /// Settles the votes of the last window. Throws Error without TrainerOptions::ema.
  void require_averages(const char* call);
  /// Call it before each micro-batch. Settles the votes of the last window on all ranks, so a
  /// pending snapshot may advance.
  void begin_micro_batch();
  StepReport micro_batch(const std::function<Loss()>& closure);
  /// Call it after a micro-batch: closes the window, with its update, if it is full. Returns the
  /// report of the micro-batch.
  StepReport close_window_if_full();
  StepReport close_window();
  void note_loss();
  /// This rank's vote about pending saves.
  Votes votes() const;
  /// Call it after each window: advances pending snapshots, and takes one in node memory if it is
  /// due. Collective.
  void save_after_window();
  /// The report with the times of the window and, at its end, the save that has ended.
  StepReport completed(StepReport report);
  /// Settles the last window and adopts what the program wrote to weights (WrittenWeights). False,
  /// without adopting, if a parameter has left the arena on any rank. Collective.
  bool take_written();
  /// take_written(), but throws Error on every rank if a parameter has left the arena. Collective.
  void require_written();
  void require_one_copy();
  void adopt_trainable();

  Runtime& runtime;
  Agreement agreement;
  TrainerOptions options;
  std::string description;  // of the optimizer
  ActivationPlanning activations;
  TrainingStorage storage;
  MemoryPlanning memory;
  std::unique_ptr<Step> step;
  std::unique_ptr<Plateau> plateau;         // with TrainerOptions::reduce_on_plateau
  std::unique_ptr<CapturedSteps> captured;  // with TrainerOptions::cuda_graph
  std::unique_ptr<DigestLog> digests;       // with TrainerOptions::digest_log
  LoopState loop;
  StragglerWatch stragglers;
  bool on_trial = false;           // KeptTraining undoes the updates
  std::unique_ptr<Saving> saving;  // last: its destructor completes a pending snapshot

 private:
  /// `asked`: the program's options, which snapshots keep. The wire dtype and accumulate of
  /// `options` may differ, since they may depend on the number of ranks.
  TrainerImpl(Runtime& runtime, const Model& model, const OptimizerSpec& spec,
              const TrainerOptions& asked, Parts parts);
  void advance_saving();
  void watch_stragglers(const StepReport& closed);

  double data_wait_ = 0.0;  // seconds, of the window
  std::optional<std::chrono::steady_clock::time_point> window_start_;
};

}  // namespace lockstep::detail
