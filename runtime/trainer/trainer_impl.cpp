#include <c10/core/InferenceMode.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/amp/sync_batch_norm.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/graph_capture.h>
#include <lockstep/runtime/step/impl/gradient_sums.h>
#include <lockstep/runtime/step/impl/option_fields.h>
#include <lockstep/runtime/storage/impl/model_memory.h>
#include <lockstep/runtime/storage/impl/replicas.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>

#include <iostream>

namespace lockstep::detail {

/// With what a Trainer is made; checked.
struct TrainerImpl::Parts {
  HostActs acts;
  MakeStepGraph make_graph;
  Communicator devices;  // of the gradients
  Trainable trainable;
};

namespace {

using Clock = std::chrono::steady_clock;

void require_capturable(const OptimizerSpec& optimizer, c10::Device device,
                        const Communicator& devices, bool has_graphs) {
  LOCKSTEP_CHECK(has_graphs, "cuda_graph needs a CUDA device, this rank computes on ", device,
                 "; use cuda_graph(false)");
  const std::string refusal = graph_capture_refusal(devices);
  LOCKSTEP_CHECK(refusal.empty(), "cuda_graph: ", refusal,
                 "; let NCCL carry them (RuntimeOptions::transport), or use cuda_graph(false)");
  LOCKSTEP_CHECK(optimizer.fused() != nullptr, "cuda_graph: ", optimizer.describe(),
                 " decides on the host whether to update; use a fused optimizer, or "
                 "cuda_graph(false)");
}

/// Checks all arguments on each rank, then between ranks. Moves the model to the device.
TrainerImpl::Parts checked(const Runtime& runtime, const Model& model,
                           const OptimizerSpec& optimizer, const TrainerOptions& options,
                           std::optional<HostActs> acts, MakeStepGraph make_graph,
                           const std::optional<Communicator>& devices) {
  const c10::Device device = runtime.device();
  if (!acts && !device.is_cpu()) {
    make_graph = [device] { return make_cuda_graph(device); };
  }
  TrainerImpl::Parts parts = {
      acts.value_or(device.is_cpu() ? HostActs::at_once : HostActs::one_window_late),
      std::move(make_graph), devices.value_or(runtime.communicator()), Trainable()};
  const Agreement agreement(runtime.control());
  Trainable& trainable = parts.trainable;
  agreement.attempt([&] {
    options.validate();
    with_own_leaves(options, runtime.size());
    optimizer.validate();
    LOCKSTEP_CHECK(!c10::InferenceMode::is_enabled(),
                   "a Trainer is made under InferenceMode, where tensors are made that autograd "
                   "cannot use: make it outside of it");
    trainable = trainable_parameters(model);
    require_trainable_doubles(trainable.parameters, options.precision(), optimizer, device);
    ModelMemory(model).require_movable(options.precision(), device);
    move_to(model, device);
    require_reproducible(options, runtime, model, optimizer);
    options.precision().require_known_names(model);
    require_activation_chain(options, model);
    const std::string synchronised = name_of_sync_batchnorm(model);
    LOCKSTEP_CHECK(!options.uneven_data() || synchronised.empty(), "uneven_data: the buffer ",
                   synchronised,
                   " belongs to a layer of convert_sync_batchnorm(), whose forward needs every "
                   "rank; give the ranks equal shares, or use plain BatchNorm");
    if (options.cuda_graph()) {
      require_capturable(optimizer, device, parts.devices, parts.make_graph != nullptr);
      require_no_renormed_tables("cuda_graph: ", model);
    }
  });
  require_same_structure(model, agreement);
  require_same_options(options, optimizer, trainable.parameters, agreement);
  return parts;
}

/// The default wire dtype depends on the number of ranks.
TrainerOptions with_own_wire(const TrainerOptions& asked, const Communicator& devices) {
  if (asked.local_updates() && asked.precision().wire_dtype() != at::kFloat) {
    return TrainerOptions(asked).precision(asked.precision().wire(at::kFloat));
  }
  return asked.reproducible()
             ? with_own_leaves(asked, devices.size())
             : TrainerOptions(asked).precision(with_default_wire(asked.precision(), devices));
}

}  // namespace

/// The order is part of the contract of Trainer: check, copy rank 0's weights, lay out, then the
/// parts that refer to the layout.
TrainerImpl::TrainerImpl(Runtime& runtime, const Model& model, const OptimizerSpec& spec,
                         const TrainerOptions& options, std::optional<HostActs> acts,
                         MakeStepGraph make_graph, std::optional<Communicator> devices)
    : TrainerImpl(runtime, model, spec, options,
                  checked(runtime, model, spec, options, acts, std::move(make_graph), devices)) {}

TrainerImpl::TrainerImpl(Runtime& runtime, const Model& model, const OptimizerSpec& spec,
                         const TrainerOptions& asked, Parts parts)
    : runtime(runtime),
      agreement(runtime.control()),
      options(MemoryPlanning::smallest(with_own_wire(asked, parts.devices), spec, runtime.device(),
                                       parts.devices.size())),
      description(spec.describe()),
      activations(options, model),
      storage(runtime, model, spec.clone(), options, std::move(parts.trainable), parts.devices,
              agreement, activations),
      memory(options, runtime.device(), agreement, activations, storage),
      loop(runtime.device()) {
  agreement.attempt([&] {
    step = std::make_unique<Step>(StepParts{
        options, runtime.device(), parts.acts, model.buffers(), parts.devices, agreement,
        amp::LossScaler(options.precision().loss_scaler_options(), runtime.device()), storage,
        NonFiniteDiagnosis(model, options.precision(), options.diagnosis_folder(),
                           options.reproducible()),
        runtime.seed()});
    if (options.cuda_graph()) {
      captured = std::make_unique<CapturedSteps>(*step, runtime.device(), parts.devices, agreement,
                                                 std::move(parts.make_graph));
    }
    if (!options.digest_log().empty()) {
      digests = std::make_unique<DigestLog>(options.digest_log(), options.digest_every(),
                                            runtime.control());
    }
    if (options.reduce_on_plateau()) {
      plateau = std::make_unique<Plateau>(*options.reduce_on_plateau());
    }
  });
  if (const std::string details = storage.updater().describe(); !details.empty()) {
    require_same_text("the optimizer", details, agreement);
    description = details;
  }
  saving = std::make_unique<Saving>(
      TrainingState({runtime, storage, model.buffers(), *step, loop, plateau.get(),
                     asked.precision().describe(),
                     description + "; " + with_all_leaves(asked, runtime.size()).describe(),
                     [this] { adopt_trainable(); }}),
      agreement.communicator(), options.snapshots());
  memory.begin();
  runtime.seed_ranks();
  step->seed_leaves();
}

void TrainerImpl::begin_micro_batch() {
  LOCKSTEP_CHECK(!step->window_full(), "the window is full: call update() before the next step()");
  const double waited = runtime.loaders().note_step();
  data_wait_ += waited;
  if (!window_start_) {  // the first window starts with the wait for its batch
    window_start_ = Clock::now() - std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(waited));
  }
  step->begin_window();
  advance_saving();
  if (step->micro_batches_in_window() == 0) {
    memory.begin_window();
    saving->require_own_folder();  // collective: later, a rank may have failed
    if (digests != nullptr) {
      digests->begin_window();
    }
  }
}

StepReport TrainerImpl::micro_batch(const std::function<Loss()>& closure) {
  const int64_t number = step->micro_batches_in_window();
  const auto leaf = [&] {
    if (options.reproducible()) {
      runtime.loaders().require_leaf(step->leaves().count(), number);
    }
    Loss loss = closure();
    step->leaves().require_exact(loss);
    if (digests != nullptr) {
      digests->note_random();
    }
    return loss;
  };
  const auto planned = [&] {
    memory.plan();
    return leaf();
  };
  const bool watched = options.reproducible() || digests != nullptr || memory.is_active();
  const auto run = [&] {
    step->micro_batch(watched ? std::function<Loss()>(planned) : closure,
                      /*under_autocast=*/true);
  };
  const bool measured =
      memory.is_active() ? memory.run(run) : activations.watch(runtime.device().type(), run);
  if (measured && runtime.is_main()) {
    std::cerr << (memory.is_active() ? memory.report() : activations.report()) << std::endl;
  }
  note_loss();
  return close_window_if_full();
}

StepReport TrainerImpl::close_window_if_full() {
  return step->window_full() ? close_window() : completed(step->report_open_window());
}

StepReport TrainerImpl::close_window() {
  StepReport report = step->close_window(votes());
  if (digests != nullptr) {
    step->settle();  // throws on all ranks if one failed and so lacks digests
    digests->write(step->scaler().state(), storage.reducer());
  }
  save_after_window();
  return completed(std::move(report));
}

void TrainerImpl::note_loss() {
  if (digests != nullptr) {
    digests->note_loss(step->report_open_window().loss());
  }
}

Votes TrainerImpl::votes() const {
  Votes votes;
  votes.phase_done = saving->is_phase_done() ? 1 : 0;
  return votes;
}

/// Advances a pending snapshot once the votes of all ranks say that their part of its phase is
/// done.
void TrainerImpl::advance_saving() {
  const auto all = step->consensus().take();
  if (all && all->phase_done == runtime.size()) {
    saving->advance();
  }
}

void TrainerImpl::save_after_window() {
  advance_saving();
  if (!on_trial && saving->is_memory_due()) {
    step->settle();
    saving->save_in_memory(step->updates());
  }
}

StepReport TrainerImpl::completed(StepReport report) {
  const Clock::time_point now = Clock::now();
  report.data_wait_seconds_ = data_wait_;
  report.elapsed_seconds_ = std::chrono::duration<double>(now - *window_start_).count();
  if (report.closes_update()) {
    if (auto ended = saving->take_ended()) {
      report.saved_ = std::make_shared<const snapshot::SaveReport>(std::move(*ended));
    }
    watch_stragglers(report);
    data_wait_ = 0.0;
    window_start_ = now;
  }
  return report;
}

/// With a device the host's clock says when work was issued, not when it was done.
void TrainerImpl::watch_stragglers(const StepReport& closed) {
  if (!runtime.device().is_cpu() || runtime.size() == 1) {
    return;
  }
  const double waiting = closed.exposed_communication_seconds();
  stragglers.add({closed.elapsed_seconds_ - waiting - closed.update_seconds(), waiting});
  if (!stragglers.is_due()) {
    return;
  }
  const std::string found = stragglers.compare(agreement.communicator());
  if (!found.empty() && runtime.is_main()) {
    std::cerr << "lockstep: " << found << std::endl;
  }
}

void TrainerImpl::require_outside_closure(const char* call) const {
  LOCKSTEP_CHECK(!step->is_in_closure(), call,
                 " was called in the closure of step(), which only computes the loss; call it "
                 "after step() has returned");
}

void TrainerImpl::require_averages(const char* call) {
  require_outside_closure(call);
  step->settle();
  LOCKSTEP_CHECK(storage.arena().has_averages(), call,
                 ": no average is kept; ask for one with TrainerOptions().ema(0.999)");
}

void TrainerImpl::require_no_graph() const {
  LOCKSTEP_CHECK(captured == nullptr,
                 "with cuda_graph only step(inputs, closure) can be called: the "
                 "inputs of a graph are replaced, its closure is not");
}

void TrainerImpl::require_between_windows(const char* call) const {
  LOCKSTEP_CHECK(step->micro_batches_in_window() == 0, call, " in the middle of a window, after ",
                 step->micro_batches_in_window(),
                 " of its micro-batches: call it when StepReport::closes_update(), or abandon() "
                 "first");
}

bool TrainerImpl::take_written() {
  step->settle();
  const bool whole = !agreement.any(storage.watch().departure().has_value());
  if (whole) {
    storage.written().take();
  }
  return whole;
}

void TrainerImpl::require_written() {
  step->settle();
  agreement.raise_if_any(storage.watch().departure());
  storage.written().take();
  storage.replicas().take_shared();
  require_one_copy();
}

/// Throws Error if a rank wrote into weights that its node shares, and nothing took that over.
void TrainerImpl::require_one_copy() {
  if (storage.arena().shared()) {
    agreement.raise_if_any(storage.written().hidden());
  }
}

void TrainerImpl::adopt_trainable() {
  require_between_windows("adopt_trainable()");
  take_written();
  storage.replicas().take_shared();
  require_one_copy();
  if (storage.adopt_trainable() && captured != nullptr) {
    captured->forget();
  }
}

}  // namespace lockstep::detail
