#include <ATen/ops/scalar_tensor.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/memory_use.h>
#include <lockstep/runtime/process/impl/kept_stop_signals.h>
#include <lockstep/runtime/process/impl/stop_signals.h>
#include <lockstep/runtime/saving/impl/averages.h>
#include <lockstep/runtime/step/impl/gradient_statistics.h>
#include <lockstep/runtime/step/impl/option_fields.h>
#include <lockstep/runtime/storage/impl/bucket_plan.h>
#include <lockstep/runtime/table.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>
#include <lockstep/runtime/trainer/own/stored_dtypes.h>

#include <exception>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep {
namespace {

/// One row a parameter: absmax, headroom of the wire dtype in bits, share of zeros and of values
/// that are subnormal in fp16.
std::string table_of(const std::vector<detail::GradientRange>& ranges) {
  Table table(
      {"parameter", "elements", "absmax", "headroom bits", "zeros %", "tiny %", "inf", "NaN"});
  for (const detail::GradientRange& range : ranges) {
    const amp::ValueSummary& values = range.values;
    const auto percent = [&](int64_t count) {
      return format_number(values.numel > 0 ? 100.0 * static_cast<double>(count) /
                                                  static_cast<double>(values.numel)
                                            : 0.0);
    };
    table.row({range.parameter, std::to_string(values.numel), format_number(values.absmax),
               format_number(values.headroom_bits(range.wire)), percent(values.zeros),
               percent(values.tiny), std::to_string(values.infs), std::to_string(values.nans)});
  }
  return table.text();
}

}  // namespace

Trainer::Trainer(Runtime& runtime, Model model, const OptimizerSpec& optimizer,
                 TrainerOptions options)
    : Trainer(std::make_unique<detail::TrainerImpl>(runtime, options.precision().with_norms(model),
                                                    optimizer, options)) {}

Trainer::Trainer(std::unique_ptr<detail::TrainerImpl> impl) : impl_(std::move(impl)) {}

/// While an exception unwinds, the program ends with that exception.
Trainer::~Trainer() {
  if (std::uncaught_exceptions() == 0) {
    try {
      impl_->storage.replicas().hold_at_end(impl_->runtime);
    } catch (const std::exception& error) {
      std::cerr << "the replicas cannot be compared: " << error.what() << std::endl;
    }
  }
}

StepReport Trainer::step(const std::function<Loss()>& closure) {
  impl_->require_outside_closure("step()");
  impl_->require_no_graph();
  return impl_->together([&] {
    impl_->begin_micro_batch();
    return impl_->micro_batch(closure);
  });
}

StepReport Trainer::step(const std::vector<at::Tensor>& inputs,
                         const std::function<Loss(const std::vector<at::Tensor>&)>& closure) {
  impl_->require_outside_closure("step()");
  return impl_->together([&] {
    impl_->begin_micro_batch();
    if (impl_->captured == nullptr) {
      return impl_->micro_batch([&] { return closure(detail::on_device(inputs, device())); });
    }
    StepReport report = impl_->captured->run(inputs, closure, impl_->votes());
    impl_->save_after_window();
    return impl_->completed(std::move(report));
  });
}

StepReport Trainer::step_without_data() {
  impl_->require_outside_closure("step_without_data()");
  return impl_->together([&] {
    impl_->begin_micro_batch();
    impl_->step->empty_micro_batch();
    return impl_->close_window_if_full();
  });
}

void Trainer::backward(const Loss& loss) {
  impl_->require_outside_closure("backward()");
  LOCKSTEP_CHECK(!impl_->options.reproducible(),
                 "TrainerOptions.reproducible: the forward of this loss has run with the random "
                 "numbers and buffers of a rank; call step(closure)");
  LOCKSTEP_CHECK(!impl_->step->window_full(),
                 "backward() was called accumulate() times: call update() now");
  impl_->require_no_graph();
  impl_->together([&] {
    impl_->begin_micro_batch();
    if (impl_->digests != nullptr) {
      impl_->digests->note_random();
    }
    impl_->step->micro_batch([&] { return loss; }, /*under_autocast=*/false);
    impl_->note_loss();
  });
}

StepReport Trainer::update() {
  impl_->require_outside_closure("update()");
  LOCKSTEP_CHECK(impl_->step->window_full(), "update() before backward(): the window has ",
                 impl_->step->micro_batches_in_window(),
                 " micro-batches, fewer than accumulate(); call backward(loss) first");
  return impl_->together([&] { return impl_->close_window(); });
}

void Trainer::save(std::optional<MetricValue> metric) {
  impl_->require_outside_closure("save()");
  impl_->require_between_windows("save()");
  impl_->together([&] {
    impl_->require_written();
    impl_->agreement.raise_if_any(impl_->storage.frozen_watch().change_in_values());
    impl_->saving->save(updates(), metric);
  });
}

std::optional<snapshot::SaveReport> Trainer::finish_saving() {
  impl_->require_outside_closure("finish_saving()");
  impl_->step->settle();
  impl_->saving->finish();
  return impl_->saving->take_ended();
}

void Trainer::save_and_leave() {
  save();
  const auto report = finish_saving();
  if (report && report->error) {
    throw Error(*report->error, report->code, report->ranks);
  }
  detail::keep_stop_signals();
  throw Error(c10::str("stopped on request at update ", updates(), "; its snapshot is saved"),
              ExitCode::preempted);
}

ResumeReport Trainer::resume(const std::string& folder) {
  impl_->require_outside_closure("resume()");
  impl_->require_between_windows("resume()");
  impl_->step->settle();
  detail::require_same_fields("resume()", {{"folder", detail::text_of(folder)}}, impl_->agreement);
  impl_->agreement.raise_if_any(impl_->storage.watch().departure());
  return impl_->saving->resume(folder);
}

snapshot::LoadReport Trainer::load_weights(const std::string& path,
                                           const snapshot::LoadOptions& options) {
  impl_->require_outside_closure("load_weights()");
  impl_->require_written();
  const snapshot::LoadReport report = impl_->saving->load_weights(path, options);
  impl_->saving->forget_metric();
  return report;
}

void Trainer::state(const std::string& name, at::Tensor& tensor) {
  impl_->loop.add(name, &tensor);
}
void Trainer::state(const std::string& name, double& number) {
  impl_->loop.add(name, &number);
}
void Trainer::state(const std::string& name, int64_t& number) {
  impl_->loop.add(name, &number);
}
void Trainer::state(const std::string& name, std::string& bytes) {
  impl_->loop.add(name, &bytes);
}
amp::Autocast Trainer::autocast() const {
  return impl_->step->autocast();
}

void Trainer::abandon() {
  impl_->require_outside_closure("abandon()");
  impl_->together([&] { impl_->step->abandon(); });
}
void Trainer::request_stop() noexcept {
  impl_->step->consensus().request_stop();
}
void Trainer::stop_on_signals() {
  stop_on_signals(detail::usual_stop_signals());
}
void Trainer::stop_on_signals(const std::vector<int>& signals) {
  impl_->step->consensus().stop_on_signals(signals);
}
bool Trainer::stop_requested() const {
  return impl_->step->stop_requested();
}
c10::Device Trainer::device() const {
  return impl_->runtime.device();
}
Runtime& Trainer::runtime() const {
  return impl_->runtime;
}
int64_t Trainer::updates() const {
  return impl_->step->updates();
}
void Trainer::set_learning_rate(double rate, std::optional<int> group) {
  impl_->require_outside_closure("set_learning_rate()");
  detail::Updater& updater = impl_->storage.updater();
  updater.take_edited_rates();
  updater.learning_rates().set(rate, group);
  updater.show_rates();
}
double Trainer::learning_rate(int group) const {
  detail::Updater& updater = impl_->storage.updater();
  updater.take_edited_rates();
  return updater.learning_rates().of(group);
}
bool Trainer::reduce_on_plateau(const MetricValue& metric) {
  impl_->require_outside_closure("reduce_on_plateau()");
  LOCKSTEP_CHECK(impl_->plateau != nullptr,
                 "reduce_on_plateau() needs a rule: TrainerOptions().reduce_on_plateau("
                 "ReduceOnPlateau())");
  detail::Updater& updater = impl_->storage.updater();
  updater.take_edited_rates();
  const bool is_lowered = impl_->plateau->step(metric, updates(), updater.learning_rates());
  updater.show_rates();
  return is_lowered;
}
void Trainer::diagnose_next_overflow() {
  impl_->step->consensus().diagnose_next_overflow();
}
const std::string& Trainer::diagnosis() const {
  return impl_->step->diagnosis().text();
}
std::string Trainer::gradient_table() const {
  return table_of(detail::gradient_ranges(impl_->storage.reducer()));
}
double Trainer::loss_scale(int64_t loss) const {
  return impl_->step->scaler_of(loss).value();
}
amp::ScalerState Trainer::scaler_state(int64_t loss) const {
  return impl_->step->scaler_of(loss).state();
}

std::vector<std::pair<std::string, at::Tensor>> Trainer::masters() const {
  impl_->require_outside_closure("masters()");
  impl_->step->settle();
  impl_->storage.written().adopt();
  impl_->storage.replicas().take_shared();
  return impl_->storage.named(impl_->storage.arena().whole_masters());
}

std::vector<std::pair<std::string, at::Tensor>> Trainer::averaged() const {
  impl_->require_averages("averaged()");
  return detail::all_averages(impl_->storage);
}

void Trainer::adopt_weights() {
  impl_->require_outside_closure("adopt_weights()");
  impl_->take_written();
  impl_->storage.written().take_shared(impl_->agreement);  // adopt_weights() tells of differences
  impl_->storage.adopt_weights();
  impl_->saving->forget_metric();
}

void Trainer::finish_round() {
  impl_->require_outside_closure("finish_round()");
  impl_->require_between_windows("finish_round()");
  impl_->take_written();
  detail::LocalRounds* rounds = impl_->storage.rounds();
  if (rounds != nullptr && rounds->updates_of_round() > 0) {
    rounds->finish();
    impl_->saving->forget_metric();
  }
}

void Trainer::adopt_trainable() {
  impl_->require_outside_closure("adopt_trainable()");
  impl_->adopt_trainable();
}

bool Trainer::replicas_agree() const {
  impl_->require_outside_closure("replicas_agree()");
  const bool whole = impl_->take_written();
  const amp::ScalerState scaler = scaler_state();
  std::vector<detail::ReplicatedArray> counters = {
      {"the loss scale", at::scalar_tensor(scaler.scale, at::kFloat)},
      {"the number of updates", at::scalar_tensor(updates(), at::kLong)}};
  for (const amp::LossScaler& each : impl_->step->loss_scales().scalers()) {
    counters.push_back({"the scale of a loss", each.scale_tensor()});
  }
  const bool equal = impl_->storage.replicas().are_equal(counters);
  return whole && equal;
}

std::string Trainer::activation_report() const {
  return impl_->activations.report();
}
std::string Trainer::memory_report() const {
  return impl_->memory.report();
}
Trainer::Memory Trainer::memory() const {
  return impl_->storage.memory();
}
std::string Trainer::summary() const {
  if (!runtime().is_main()) {
    return {};
  }
  const detail::TrainingStorage& storage = impl_->storage;
  const detail::Trainable& trainable = storage.trainable();
  int64_t elements = 0;
  int64_t doubles = 0;
  for (const ModelTensor& entry : trainable.parameters) {
    elements += entry.tensor.numel();
    const bool wide = c10::toRealValueType(entry.tensor.scalar_type()) == at::kDouble;
    doubles += wide ? entry.tensor.numel() : 0;
  }
  const Precision& precision = impl_->options.precision();
  std::ostringstream out;
  out.precision(4);
  out << "model      " << elements << " trainable elements in " << trainable.parameters.size()
      << " parameters, " << trainable.frozen.size() << " frozen"
      << (doubles > 0 ? c10::str(", ", doubles, " elements are fp64") : std::string()) << "\n"
      << "precision  " << precision.describe() << "\n"
      << detail::stored_dtypes(storage.model(), precision, storage.exact()) << "optimizer  "
      << detail::with_groups(impl_->description, storage.optimizer(), trainable.parameters)
      << "buckets    " << storage.reducer().size() << ", laid out once"
      << padding_note(storage.reducer().plans()) << "\n"
      << "memory     " << memory_line(memory()) << "\n";
  return out.str();
}

}  // namespace lockstep
