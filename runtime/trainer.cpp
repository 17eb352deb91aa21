#include <lockstep/amp/kept_fp32.h>
#include <lockstep/runtime/activation_planning.h>
#include <lockstep/runtime/arena.h>
#include <lockstep/runtime/gradient_statistics.h>
#include <lockstep/runtime/host_threads.h>
#include <lockstep/runtime/replicas.h>
#include <lockstep/runtime/saving.h>
#include <lockstep/runtime/step.h>
#include <lockstep/runtime/trainer.h>

#include <iostream>
#include <sstream>

namespace lockstep {
namespace {

std::vector<BucketPlan> plans_for(const std::vector<ModelTensor>& parameters,
                                  const OptimizerSpec& optimizer, const TrainerOptions& options) {
  std::vector<PlannedParameter> planned;
  for (const ModelTensor& entry : parameters) {
    planned.push_back({entry.tensor.numel(), options.precision().storage_dtype(entry),
                       options.precision().wire_dtype(), optimizer.group_of(entry)});
  }
  return plan_buckets(planned, options.buckets());
}

ReducerOptions reducer_options(const TrainerOptions& options) {
  ReducerOptions result;
  result.op = ReduceOp::avg().predivide(options.precision().predivide_factor());
  result.densify_sparse = options.densify_sparse();
  result.take_gradients = true;
  result.accumulators = options.accumulate() > 1;
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
  return {options.precision().rounds_randomly(), seed, static_cast<float>(1.0 - options.ema())};
}

void require_no_double(const std::vector<ModelTensor>& parameters) {
  for (const ModelTensor& entry : parameters) {
    LOCKSTEP_CHECK(entry.tensor.scalar_type() != at::kDouble, "parameter ", entry.name,
                   " is fp64; Trainer keeps fp32 masters at most: call model->to(torch::kFloat)");
  }
}

/// Everything that can be wrong with the arguments, found before any rank communicates.
Trainable checked(const Model& model, const OptimizerSpec& optimizer, const TrainerOptions& options,
                  c10::Device device, Agreement& agreement) {
  Trainable trainable;
  agreement.attempt([&] {
    options.validate();
    optimizer.validate();
    trainable = trainable_parameters(model);
    require_no_double(trainable.parameters);
    require_device(model, device);
    require_activation_chain(options, model);
  });
  require_same_structure(model, agreement);
  require_same_text("the configuration", optimizer.describe() + "; " + options.describe(),
                    agreement);
  return trainable;
}

}  // namespace

struct Trainer::Impl {
  Impl(Runtime& runtime, const Model& model, const OptimizerSpec& spec,
       const TrainerOptions& options)
      : runtime(runtime),
        communicator(runtime.communicator()),
        agreement(runtime.control()),
        trainable(checked(model, spec, options, runtime.device(), agreement)),
        activations(options, model),
        description(spec.describe()) {
    broadcast_and_verify(model.parameters(), communicator, agreement);
    broadcast_and_verify(model.buffers(), communicator, agreement);
    const auto plans = plans_for(trainable.parameters, spec, options);
    arena = std::make_unique<Arena>(trainable.parameters, plans, options.precision(),
                                    arena_options(options, communicator));
    convert_storage(trainable.frozen, options.precision());
    convert_storage(model.buffers(), options.precision());
    for (const ModelTensor& entry : model.parameters()) {
      if (options.precision().keeps_fp32(entry)) {
        amp::compute_in_fp32(entry.tensor);
      }
    }
    release_freed_memory();
    reducer = std::make_unique<Reducer>(communicator, trainable.parameters, plans,
                                        reducer_options(options));
    updater = Updater::make(spec, *reducer, *arena, updater_options(options, runtime.seed()));
    step = std::make_unique<Step>(StepParts{
        options, runtime.device(), spec.learning_rate(0), model.buffers(), trainable, communicator,
        agreement, amp::LossScaler(options.precision().loss_scaler_options(), runtime.device()),
        *reducer, *updater,
        NonFiniteDiagnosis(model, options.precision(), options.diagnosis_folder()), [this] {
          return out_of_memory_advice(memory(), device_memory(this->runtime.device()),
                                      activations.report());
        }});
    precision = options.precision().describe();
    saving = std::make_unique<Saving>(
        TrainingState({runtime, trainable, model.buffers(), *reducer, *arena, *updater, *step,
                       precision, description + "; " + options.describe()}),
        agreement.communicator(), options.snapshots());
    runtime.seed_ranks();
  }

  StepReport close_window();
  Memory memory() const;
  std::vector<std::pair<std::string, at::Tensor>> named(const std::vector<at::Tensor>& flats) const;

  Runtime& runtime;
  Communicator communicator;
  Agreement agreement;
  Trainable trainable;
  ActivationPlanning activations;
  std::string description;
  std::string precision;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Reducer> reducer;
  std::unique_ptr<Updater> updater;
  std::unique_ptr<Step> step;
  std::unique_ptr<Saving> saving;  // last: what is pending is completed while all else is there
};

/// The update, and what a pending snapshot may do next now that the ranks have met.
StepReport Trainer::Impl::close_window() {
  saving->require_own_folder();
  step->tell_saved(saving->is_ready());
  StepReport report = step->close_window();
  if (step->saved_everywhere()) {
    saving->advance();
  }
  if (auto ended = saving->take_ended()) {
    report.saved_ = std::make_shared<const snapshot::SaveReport>(std::move(*ended));
  }
  return report;
}

Trainer::Trainer(Runtime& runtime, Model model, const OptimizerSpec& optimizer,
                 TrainerOptions options)
    : impl_(std::make_unique<Impl>(runtime, model, optimizer, options)) {}
Trainer::~Trainer() = default;

StepReport Trainer::step(const std::function<Loss()>& closure) {
  Step& step = *impl_->step;
  LOCKSTEP_CHECK(!step.window_full(), "the window is full: call update() before the next step()");
  const bool measured = impl_->activations.watch(
      device().type(), [&] { step.micro_batch(closure, /*under_autocast=*/true); });
  if (measured && impl_->runtime.is_main()) {
    std::cerr << impl_->activations.report() << std::endl;
  }
  return step.window_full() ? impl_->close_window() : step.report_open_window();
}

StepReport Trainer::step_without_data() {
  Step& step = *impl_->step;
  LOCKSTEP_CHECK(!step.window_full(), "the window is full: call update() first");
  step.empty_micro_batch();
  return step.window_full() ? impl_->close_window() : step.report_open_window();
}

void Trainer::backward(const Loss& loss) {
  Step& step = *impl_->step;
  LOCKSTEP_CHECK(!step.window_full(),
                 "backward() was called accumulate() times: call update() now");
  step.micro_batch([&] { return loss; }, /*under_autocast=*/false);
}

StepReport Trainer::update() {
  Step& step = *impl_->step;
  LOCKSTEP_CHECK(step.window_full(), "update() before backward(): the window has ",
                 step.micro_batches_in_window(),
                 " micro-batches, fewer than accumulate(); call backward(loss) first");
  return impl_->close_window();
}

void Trainer::save(std::optional<double> metric) {
  LOCKSTEP_CHECK(impl_->step->micro_batches_in_window() == 0,
                 "save() in the middle of a window, after ", impl_->step->micro_batches_in_window(),
                 " of its micro-batches: call it when StepReport::closes_update(), or abandon()");
  impl_->saving->save(updates(), metric);
}

std::optional<snapshot::SaveReport> Trainer::finish_saving() {
  impl_->saving->finish();
  return impl_->saving->take_ended();
}

void Trainer::save_and_leave() {
  save();
  const auto report = finish_saving();
  LOCKSTEP_CHECK_CODE(!report || !report->error, ExitCode::snapshot, *report->error);
  throw Error(c10::str("stopped on request at update ", updates(), "; its snapshot is saved"),
              ExitCode::preempted);
}

ResumeReport Trainer::resume(const std::string& folder) {
  LOCKSTEP_CHECK(impl_->step->micro_batches_in_window() == 0,
                 "resume() in the middle of a window: call it before training, or abandon() first");
  return impl_->saving->resume(folder);
}

snapshot::LoadReport Trainer::load_weights(const std::string& path,
                                           const snapshot::LoadOptions& options) {
  return impl_->saving->load_weights(path, options);
}

void Trainer::abandon() {
  impl_->step->abandon();
}
void Trainer::request_stop() noexcept {
  impl_->step->request_stop();
}
bool Trainer::stop_requested() const {
  return impl_->step->stop_requested();
}
c10::Device Trainer::device() const {
  return impl_->runtime.device();
}
int64_t Trainer::updates() const {
  return impl_->step->updates();
}
void Trainer::diagnose_next_overflow() {
  impl_->step->diagnose_next_overflow();
}
const std::string& Trainer::diagnosis() const {
  return impl_->step->diagnosis().text();
}
std::string Trainer::gradient_table() const {
  return lockstep::gradient_table(gradient_ranges(*impl_->reducer));
}
double Trainer::loss_scale() const {
  return impl_->step->scaler().value();
}
amp::ScalerState Trainer::scaler_state() const {
  return impl_->step->scaler().state();
}

std::vector<std::pair<std::string, at::Tensor>> Trainer::Impl::named(
    const std::vector<at::Tensor>& flats) const {
  const std::vector<at::Tensor> views =
      parameter_views(flats, reducer->parameters(), reducer->plans());
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (size_t i = 0; i < views.size(); ++i) {
    result.emplace_back(trainable.parameters[i].name, views[i]);
  }
  return result;
}

std::vector<std::pair<std::string, at::Tensor>> Trainer::masters() const {
  return impl_->named(impl_->arena->whole_masters());
}

std::vector<std::pair<std::string, at::Tensor>> Trainer::averaged() const {
  const std::vector<at::Tensor> flats = impl_->arena->whole_averages();
  LOCKSTEP_CHECK(!flats.empty(),
                 "averaged(): no average is kept; ask for one with TrainerOptions().ema(0.999)");
  return impl_->named(flats);
}

void Trainer::adopt_weights() {
  impl_->arena->adopt_weights();
}

bool Trainer::replicas_agree() const {
  std::vector<at::Tensor> flats;
  for (const Arena::Bucket& bucket : impl_->arena->buckets()) {
    flats.push_back(bucket.weights);
    if (bucket.masters.defined() && !impl_->arena->sharded()) {
      flats.push_back(bucket.masters);
    }
  }
  const amp::ScalerState scaler = scaler_state();
  const auto update = static_cast<uint64_t>(updates());
  uint32_t scale_bits = 0;
  std::memcpy(&scale_bits, &scaler.scale, sizeof(scale_bits));
  const uint64_t mine = digest(flats) ^ (update << 32U) ^ scale_bits;
  return same_on_all_ranks(mine, impl_->agreement.communicator());
}

std::string Trainer::activation_report() const {
  return impl_->activations.report();
}

Trainer::Memory Trainer::Impl::memory() const {
  Memory result;
  result.weights = arena->weight_bytes();
  result.masters = arena->master_bytes();
  for (size_t b = 0; b < reducer->size(); ++b) {
    result.gradients += static_cast<int64_t>(reducer->wire(b).nbytes());
  }
  result.accumulators = reducer->accumulator_bytes();
  result.moments = updater->moment_bytes();
  result.averages = arena->average_bytes();
  result.residuals = reducer->residual_bytes();
  return result;
}

Trainer::Memory Trainer::memory() const {
  return impl_->memory();
}

std::string Trainer::summary() const {
  if (!impl_->runtime.is_main()) {
    return {};
  }
  int64_t elements = 0;
  for (const ModelTensor& entry : impl_->trainable.parameters) {
    elements += entry.tensor.numel();
  }
  std::ostringstream out;
  out.precision(4);
  out << "model      " << elements << " trainable elements in "
      << impl_->trainable.parameters.size() << " parameters, " << impl_->trainable.frozen.size()
      << " frozen\n"
      << "precision  " << impl_->precision << "\n"
      << "optimizer  " << impl_->description << "\n"
      << "buckets    " << impl_->reducer->size() << ", laid out once\n"
      << "memory     " << memory_line(memory()) << "\n";
  return out.str();
}

}  // namespace lockstep
