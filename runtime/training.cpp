#include <lockstep/amp/kept_fp32.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/collectives/as_error.h>
#include <lockstep/collectives/graph_capture.h>
#include <lockstep/runtime/environment.h>
#include <lockstep/runtime/host_threads.h>
#include <lockstep/runtime/replicas.h>
#include <lockstep/runtime/slow_dtype_notice.h>
#include <lockstep/runtime/training.h>

namespace lockstep {
namespace {

ReducerOptions reducer_options(const TrainerOptions& options) {
  ReducerOptions result;
  result.op = ReduceOp::avg().predivide(options.precision().predivide_factor());
  result.densify_sparse = options.densify_sparse();
  result.take_gradients = true;
  result.accumulators = options.accumulate() > 1 || options.losses() > 1;
  result.error_feedback = options.precision().feeds_errors_back();
  return result;
}

Arena::Options arena_options(const TrainerOptions& options, const Communicator& communicator) {
  Arena::Options result;
  result.averages = options.ema() > 0.0;
  if (options.shard_optimizer() && communicator.size() > 1) {
    result.sharers = communicator;
  }
  return result;
}

UpdaterOptions updater_options(const TrainerOptions& options, uint64_t seed) {
  return {options.precision().rounds_randomly(), seed, static_cast<float>(1.0 - options.ema()),
          options.unused() == UnusedParameters::detect};
}

void require_recordable(const OptimizerSpec& optimizer, c10::Device device,
                        const Communicator& devices, bool has_graphs) {
  LOCKSTEP_CHECK(has_graphs, "cuda_graph needs a CUDA device, this rank computes on ", device,
                 "; use cuda_graph(false)");
  const std::string refusal = graph_capture_refusal(devices);
  LOCKSTEP_CHECK(refusal.empty(), "cuda_graph: ", refusal,
                 "; let NCCL carry them (RuntimeOptions::transport), or use cuda_graph(false)");
  LOCKSTEP_CHECK(dynamic_cast<const TorchOptimizer*>(&optimizer) == nullptr,
                 "cuda_graph: ", optimizer.describe(),
                 " decides on the host whether to update; use a fused optimizer, or "
                 "cuda_graph(false)");
}

/// Everything that can be wrong with the arguments, found before any rank communicates.
Trainable checked(const Model& model, const OptimizerSpec& optimizer, const TrainerOptions& options,
                  c10::Device device, bool has_graphs, const Communicator& devices,
                  Agreement& agreement) {
  Trainable trainable;
  agreement.attempt([&] {
    options.validate();
    optimizer.validate();
    trainable = trainable_parameters(model);
    require_no_double(trainable.parameters);
    move_to(model, device);
    options.precision().require_known_names(model);
    require_activation_chain(options, model);
    if (options.cuda_graph()) {
      require_recordable(optimizer, device, devices, has_graphs);
    }
  });
  require_same_structure(model, agreement);
  require_same_text("the configuration", optimizer.describe() + "; " + options.describe(),
                    agreement);
  return trainable;
}

}  // namespace

Training::Training(Runtime& runtime, const Model& model, const OptimizerSpec& spec,
                   const TrainerOptions& options)
    : Training(
          runtime, model, spec, options,
          runtime.device().is_cpu() ? HostActs::at_once : HostActs::one_window_late,
          runtime.device().is_cpu() ? MakeStepGraph() : [device = runtime.device()] {
            return make_cuda_graph(device);
          }) {}

Training::Training(Runtime& runtime, const Model& model, const OptimizerSpec& spec,
                   const TrainerOptions& options, HostActs acts, MakeStepGraph make_graph,
                   const Communicator& devices)
    : runtime(runtime),
      communicator(devices),
      agreement(runtime.control()),
      model(model),
      spec(spec.clone()),
      options(options),
      trainable(checked(model, spec, options, runtime.device(), make_graph != nullptr, devices,
                        agreement)),
      activations(options, model),
      description(spec.describe()),
      loop(runtime.device()) {
  explained([&] {
    broadcast_and_verify(model.parameters(), communicator, agreement);
    broadcast_and_verify(model.buffers(), communicator, agreement);
  });
  const auto plans = plans_for(trainable.parameters);
  agreement.attempt([&] {
    if (dtype_is_probed() && runtime.is_main()) {
      SlowDtypeNotice::of_process().look_at(options.precision(), runtime.device());
    }
    explained([&] { lay_out(model, plans, options); });
  });
  std::vector<at::Tensor> wires;
  explained([&] { wires = allocate_wires(communicator, plans); });
  agreement.attempt([&] {
    explained([&] {
      reducer = std::make_unique<Reducer>(communicator, trainable.parameters, plans,
                                          std::move(wires), reducer_options(options));
      updater = new_updater();
      make_checks();
      make_steps(model, options, acts);
      if (options.cuda_graph()) {
        record_steps(std::move(make_graph));
      }
    });
  });
  if (options.reduce_on_plateau()) {
    plateau = std::make_unique<Plateau>(*options.reduce_on_plateau());
  }
  if (const std::string details = updater->describe(); !details.empty()) {
    require_same_text("the optimizer", details, agreement);
    description = details;
  }
  precision = options.precision().describe();
  saving = std::make_unique<Saving>(
      TrainingState({runtime, trainable, model.buffers(), *reducer, *arena, exact, updater,
                     replicas, *steps, loop, plateau.get(), precision,
                     description + "; " + options.describe(), [this] { adopt_trainable(); }}),
      agreement.communicator(), options.snapshots());
  runtime.seed_ranks();
}

/// Where `body` gets no memory, the Error says who has it.
void Training::explained(const std::function<void()>& body) const {
  try {
    body();
  } catch (...) {
    const Error error = as_error(std::current_exception());
    if (error.code() != ExitCode::out_of_memory) {
      throw;
    }
    throw Error(
        c10::str("out of memory while the Trainer is made: ", error.what(), "\n", memory_advice()),
        error.code());
  }
}

std::string Training::memory_advice() const {
  return out_of_memory_advice(memory(), device_memory(runtime.device()), activations.report());
}

/// Parameters move into the arena, all else gets the dtype it is to have.
void Training::lay_out(const Model& model, const std::vector<BucketPlan>& plans,
                       const TrainerOptions& options) {
  arena = std::make_unique<Arena>(new_arena(plans));
  exact.convert(trainable.frozen, options.precision());
  exact.convert(model.buffers(), options.precision());
  refresh_model();
  release_freed_memory(runtime.device());
}

std::vector<BucketPlan> Training::plans_for(const std::vector<ModelTensor>& parameters) const {
  std::vector<PlannedParameter> planned;
  planned.reserve(parameters.size());
  for (const ModelTensor& entry : parameters) {
    planned.push_back({entry.tensor.numel(), options.precision().storage_dtype(entry),
                       options.precision().wire_dtype(), spec->group_of(entry)});
  }
  return plan_buckets(planned, options.buckets());
}

Arena Training::new_arena(const std::vector<BucketPlan>& plans) const {
  return {trainable.parameters, plans, options.precision(), arena_options(options, communicator)};
}

std::unique_ptr<Updater> Training::new_updater() {
  return Updater::make(*spec, *reducer, *arena, updater_options(options, runtime.seed()));
}

void Training::refresh_model() const {
  for (const ModelTensor& entry : model.parameters()) {
    if (options.precision().keeps_fp32(entry)) {
      amp::compute_in_fp32(entry.tensor);
    }
  }
  show_ties(model);
}

/// Once everything is where it stays.
void Training::make_checks() {
  const int64_t every = options.compare_replicas_every();
  watch = std::make_unique<ModelWatch>(model, trainable, every > 0 ? every : 100);
  replicas =
      std::make_unique<ReplicaCheck>(trainable, *arena, *reducer, *updater, agreement, every);
}

void Training::make_steps(const Model& model, const TrainerOptions& options, HostActs acts) {
  steps = std::make_unique<Step>(StepParts{
      options, runtime.device(), acts, model.buffers(), trainable, communicator, agreement,
      amp::LossScaler(options.precision().loss_scaler_options(), runtime.device()), *reducer,
      updater, watch, replicas,
      NonFiniteDiagnosis(model, options.precision(), options.diagnosis_folder()),
      [this] { return memory_advice(); }});
}

void Training::record_steps(MakeStepGraph make_graph) {
  graphed = std::make_unique<GraphedSteps>(
      *steps, communicator, agreement, std::move(make_graph),
      GraphedSteps::Ways{
          [this](const std::function<Loss()>& closure) { return micro_batch(closure); },
          [this](const std::function<StepReport()>& close) { return close_by(close); }});
}

std::vector<std::pair<std::string, at::Tensor>> Training::named(
    const std::vector<at::Tensor>& flats) const {
  const std::vector<at::Tensor> views =
      parameter_views(flats, reducer->parameters(), reducer->plans());
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (size_t i = 0; i < views.size(); ++i) {
    result.emplace_back(trainable.parameters[i].name, views[i]);
  }
  return result;
}

Trainer::Memory Training::memory() const {
  Trainer::Memory result;
  if (arena != nullptr) {
    result.weights = arena->weight_bytes();
    result.masters = arena->master_bytes();
    result.averages = arena->average_bytes();
  }
  if (reducer != nullptr) {
    for (size_t b = 0; b < reducer->size(); ++b) {
      result.gradients += static_cast<int64_t>(reducer->wire(b).nbytes());
    }
    result.accumulators = reducer->accumulator_bytes();
    result.residuals = reducer->residual_bytes();
  }
  if (updater != nullptr) {
    result.moments = updater->moment_bytes();
  }
  return result;
}

}  // namespace lockstep
