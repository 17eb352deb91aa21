#pragma once

#include <lockstep/runtime/report/digest_log.h>
#include <lockstep/runtime/state/saving.h>
#include <lockstep/runtime/state/training_storage.h>
#include <lockstep/runtime/step/activation_planning.h>
#include <lockstep/runtime/step/captured_steps.h>
#include <lockstep/runtime/step/plateau.h>
#include <lockstep/runtime/step/step.h>
#include <lockstep/runtime/step/straggler_watch.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// What a Trainer consists of, and the calls of a Trainer in terms of these parts.
/// Ranks and threads: as Trainer. If one rank cannot make a part, every rank throws.
struct Training {
  /// `acts`, `make_graph` and `devices` (the communicator of the gradients) follow from the device
  /// of `runtime`; tests give others.
  Training(Runtime& runtime, const Model& model, const OptimizerSpec& spec,
           const TrainerOptions& options, HostActs acts, MakeStepGraph make_graph,
           const Communicator& devices);
  Training(Runtime& runtime, const Model& model, const OptimizerSpec& spec,
           const TrainerOptions& options, HostActs acts, MakeStepGraph make_graph = nullptr)
      : Training(runtime, model, spec, options, acts, std::move(make_graph),
                 runtime.communicator()) {}
  Training(Runtime& runtime, const Model& model, const OptimizerSpec& spec,
           const TrainerOptions& options);

  StepReport step(const std::function<Loss()>& closure);
  StepReport step(const std::vector<at::Tensor>& inputs, const CapturedSteps::Closure& closure);
  StepReport step_without_data();
  void backward(const Loss& loss);
  StepReport update();

  void save(std::optional<MetricValue> metric);
  std::optional<snapshot::SaveReport> finish_saving();
  ResumeReport resume(const std::string& folder);
  snapshot::LoadReport load_weights(const std::string& path, const snapshot::LoadOptions& options);

  void adopt_trainable();
  void adopt_weights();
  void finish_round();
  bool replicas_agree();
  std::string summary() const;

  Runtime& runtime;
  Agreement agreement;
  TrainerOptions options;
  std::string description;  // of the optimizer
  ActivationPlanning activations;
  TrainingStorage storage;
  std::unique_ptr<Step> steps;
  std::unique_ptr<Plateau> plateau;         // with TrainerOptions::reduce_on_plateau
  std::unique_ptr<CapturedSteps> captured;  // with TrainerOptions::cuda_graph
  std::unique_ptr<DigestLog> digests;       // with TrainerOptions::digest_log
  LoopState loop;
  StragglerWatch stragglers;
  bool on_trial = false;           // updates that are taken back: KeptTraining
  std::unique_ptr<Saving> saving;  // last: its destructor completes a pending snapshot

 private:
  /// `asked`: the program's options, which snapshots keep. The wire dtype and accumulate of
  /// `options` may differ, since they may depend on the number of ranks.
  Training(Runtime& runtime, const Model& model, const OptimizerSpec& spec,
           const TrainerOptions& asked, HostActs acts, MakeStepGraph make_graph,
           const Communicator& devices, Trainable trainable);
  void begin_micro_batch();
  void require_no_graph() const;
  void require_between_windows(const char* call) const;
  bool take_written();
  StepReport micro_batch(const std::function<Loss()>& closure);
  StepReport report();
  StepReport close_window();
  void note_loss();
  Votes votes() const;
  void advance_saving();
  StepReport with_saved(StepReport report);
  StepReport with_data_wait(StepReport report);
  void watch_stragglers(const StepReport& closed);

  double data_wait_ = 0.0;  // seconds, of the window
  std::optional<std::chrono::steady_clock::time_point> window_start_;
};

}  // namespace lockstep::detail
