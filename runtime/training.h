#pragma once

#include <lockstep/runtime/activation_planning.h>
#include <lockstep/runtime/arena.h>
#include <lockstep/runtime/exact_values.h>
#include <lockstep/runtime/graphed_steps.h>
#include <lockstep/runtime/model_watch.h>
#include <lockstep/runtime/plateau.h>
#include <lockstep/runtime/replica_check.h>
#include <lockstep/runtime/saving.h>
#include <lockstep/runtime/step.h>
#include <lockstep/runtime/trainer.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// The parts of a Trainer, put together in their one order, and how a step goes through them.
/// Ranks and threads: as Trainer. Where one rank cannot make a part, every rank throws.
struct Training {
  /// `acts`, `make_graph` and `devices`, the communicator of gradients: what the device asks for,
  /// unless a test asks for others.
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
  StepReport step(const std::vector<at::Tensor>& inputs, const GraphedSteps::Closure& closure);
  StepReport step_without_data();
  void backward(const Loss& loss);
  StepReport update();
  /// See Trainer::adopt_trainable().
  void adopt_trainable();

  /// Makes the masters what the model's weights are, and the weights views of the arena again.
  void adopt_weights();
  /// Throws the same Error on every rank where a parameter left the arena on one.
  void require_whole_model();
  bool replicas_agree();

  /// Of what is made by now.
  Trainer::Memory memory() const;
  /// Views of flat arrays that are laid out as the buckets are, by parameter name.
  std::vector<std::pair<std::string, at::Tensor>> named(const std::vector<at::Tensor>& flats) const;

  Runtime& runtime;
  Communicator communicator;
  Agreement agreement;
  Model model;
  std::shared_ptr<const OptimizerSpec> spec;
  TrainerOptions options;
  Trainable trainable;
  ActivationPlanning activations;
  std::string description;
  std::string precision;
  std::unique_ptr<Arena> arena;
  ExactValues exact;
  std::unique_ptr<Reducer> reducer;
  std::unique_ptr<Updater> updater;
  std::unique_ptr<ModelWatch> watch;
  std::unique_ptr<ReplicaCheck> replicas;
  std::unique_ptr<Step> steps;
  std::unique_ptr<Plateau> plateau;       // with TrainerOptions::reduce_on_plateau
  std::unique_ptr<GraphedSteps> graphed;  // with TrainerOptions::cuda_graph
  LoopState loop;
  std::unique_ptr<Saving> saving;  // last: what is pending is completed while all else is there

 private:
  void explained(const std::function<void()>& body) const;
  std::string memory_advice() const;
  void lay_out(const Model& model, const std::vector<BucketPlan>& plans,
               const TrainerOptions& options);
  std::vector<BucketPlan> plans_for(const std::vector<ModelTensor>& parameters) const;
  Arena new_arena(const std::vector<BucketPlan>& plans) const;
  std::unique_ptr<Updater> new_updater();
  /// After parameters got new memory: marks what computes in fp32, shows it under all tied names.
  void refresh_model() const;
  void move_into_new_layout(const Trainable& now);
  void make_checks();
  void make_steps(const Model& model, const TrainerOptions& options, HostActs acts);
  void record_steps(MakeStepGraph make_graph);

  void require_open_window() const;
  void require_no_graph() const;
  void begin_window();
  StepReport micro_batch(const std::function<Loss()>& closure);
  StepReport report();
  StepReport close_window();
  StepReport close_by(const std::function<StepReport()>& close);
  void advance_saving();
};

}  // namespace lockstep
