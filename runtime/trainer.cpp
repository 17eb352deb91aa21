#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/process/kept_stop_signals.h>
#include <lockstep/runtime/process/stop_signals.h>
#include <lockstep/runtime/state/averages.h>
#include <lockstep/runtime/step/gradient_statistics.h>
#include <lockstep/runtime/step/training.h>
#include <lockstep/runtime/table.h>
#include <lockstep/runtime/trainer.h>

#include <exception>
#include <iostream>
#include <string>
#include <vector>

namespace lockstep {
namespace {

/// The Training, for a call that is not meant for the closure of a step.
detail::Training& outside_closure(const std::unique_ptr<detail::Training>& training,
                                  const char* call) {
  LOCKSTEP_CHECK(!training->steps->is_in_closure(), call,
                 " was called in the closure of step(), which only computes the loss; call it "
                 "after step() has returned");
  return *training;
}

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
    : training_(std::make_unique<detail::Training>(runtime, options.precision().with_norms(model),
                                                   optimizer, options)) {}

/// An exception in flight is what the program ends with.
Trainer::~Trainer() {
  if (std::uncaught_exceptions() == 0) {
    try {
      training_->storage.replicas().hold_at_end(training_->runtime);
    } catch (const std::exception& error) {
      std::cerr << "the replicas cannot be compared: " << error.what() << std::endl;
    }
  }
}

StepReport Trainer::step(const std::function<Loss()>& closure) {
  return outside_closure(training_, "step()").step(closure);
}
StepReport Trainer::step(const std::vector<at::Tensor>& inputs,
                         const std::function<Loss(const std::vector<at::Tensor>&)>& closure) {
  return outside_closure(training_, "step()").step(inputs, closure);
}
StepReport Trainer::step_without_data() {
  return outside_closure(training_, "step_without_data()").step_without_data();
}
void Trainer::backward(const Loss& loss) {
  outside_closure(training_, "backward()").backward(loss);
}
StepReport Trainer::update() {
  return outside_closure(training_, "update()").update();
}

void Trainer::save(std::optional<MetricValue> metric) {
  outside_closure(training_, "save()").save(metric);
}
std::optional<snapshot::SaveReport> Trainer::finish_saving() {
  return outside_closure(training_, "finish_saving()").finish_saving();
}

void Trainer::save_and_leave() {
  save();
  const auto report = finish_saving();
  LOCKSTEP_CHECK_CODE(!report || !report->error, report->code, *report->error);
  detail::keep_stop_signals();
  throw Error(c10::str("stopped on request at update ", updates(), "; its snapshot is saved"),
              ExitCode::preempted);
}

ResumeReport Trainer::resume(const std::string& folder) {
  return outside_closure(training_, "resume()").resume(folder);
}
snapshot::LoadReport Trainer::load_weights(const std::string& path,
                                           const snapshot::LoadOptions& options) {
  return outside_closure(training_, "load_weights()").load_weights(path, options);
}

void Trainer::state(const std::string& name, at::Tensor& tensor) {
  training_->loop.add(name, &tensor);
}
void Trainer::state(const std::string& name, double& number) {
  training_->loop.add(name, &number);
}
void Trainer::state(const std::string& name, int64_t& number) {
  training_->loop.add(name, &number);
}
amp::Autocast Trainer::autocast() const {
  return training_->steps->autocast();
}

void Trainer::abandon() {
  outside_closure(training_, "abandon()").steps->abandon();
}
void Trainer::request_stop() noexcept {
  training_->steps->consensus().request_stop();
}
void Trainer::stop_on_signals() {
  stop_on_signals(detail::usual_stop_signals());
}
void Trainer::stop_on_signals(const std::vector<int>& signals) {
  training_->steps->consensus().stop_on_signals(signals);
}
bool Trainer::stop_requested() const {
  return training_->steps->stop_requested();
}
c10::Device Trainer::device() const {
  return training_->runtime.device();
}
Runtime& Trainer::runtime() const {
  return training_->runtime;
}
int64_t Trainer::updates() const {
  return training_->steps->updates();
}
void Trainer::set_learning_rate(double rate, std::optional<int> group) {
  detail::Updater& updater = outside_closure(training_, "set_learning_rate()").storage.updater();
  updater.take_edited_rates();
  updater.learning_rates().set(rate, group);
  updater.show_rates();
}
double Trainer::learning_rate(int group) const {
  detail::Updater& updater = training_->storage.updater();
  updater.take_edited_rates();
  return updater.learning_rates().of(group);
}
bool Trainer::reduce_on_plateau(const MetricValue& metric) {
  LOCKSTEP_CHECK(outside_closure(training_, "reduce_on_plateau()").plateau != nullptr,
                 "reduce_on_plateau() needs a rule: TrainerOptions().reduce_on_plateau("
                 "ReduceOnPlateau())");
  detail::Updater& updater = training_->storage.updater();
  updater.take_edited_rates();
  const bool is_lowered = training_->plateau->step(metric, updates(), updater.learning_rates());
  updater.show_rates();
  return is_lowered;
}
void Trainer::diagnose_next_overflow() {
  training_->steps->consensus().diagnose_next_overflow();
}
const std::string& Trainer::diagnosis() const {
  return training_->steps->diagnosis().text();
}
std::string Trainer::gradient_table() const {
  return table_of(detail::gradient_ranges(training_->storage.reducer()));
}
double Trainer::loss_scale(int64_t loss) const {
  return training_->steps->scaler_of(loss).value();
}
amp::ScalerState Trainer::scaler_state(int64_t loss) const {
  return training_->steps->scaler_of(loss).state();
}

std::vector<std::pair<std::string, at::Tensor>> Trainer::masters() const {
  outside_closure(training_, "masters()").steps->settle();
  training_->storage.written().adopt();
  return training_->storage.named(training_->storage.arena().whole_masters());
}

std::vector<std::pair<std::string, at::Tensor>> Trainer::averaged() const {
  outside_closure(training_, "averaged()").steps->settle();
  auto averages = detail::all_averages(training_->storage);
  LOCKSTEP_CHECK(!averages.empty(),
                 "averaged(): no average is kept; ask for one with TrainerOptions().ema(0.999)");
  return averages;
}

void Trainer::adopt_weights() {
  outside_closure(training_, "adopt_weights()").adopt_weights();
}
void Trainer::finish_round() {
  outside_closure(training_, "finish_round()").finish_round();
}
void Trainer::adopt_trainable() {
  outside_closure(training_, "adopt_trainable()").adopt_trainable();
}
bool Trainer::replicas_agree() const {
  return outside_closure(training_, "replicas_agree()").replicas_agree();
}
std::string Trainer::activation_report() const {
  return training_->activations.report();
}
Trainer::Memory Trainer::memory() const {
  return training_->storage.memory();
}
std::string Trainer::summary() const {
  return training_->summary();
}

}  // namespace lockstep
