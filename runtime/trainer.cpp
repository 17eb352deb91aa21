#include <lockstep/runtime/gradient_statistics.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/training.h>

#include <exception>
#include <iostream>
#include <sstream>

namespace lockstep {

struct Trainer::Impl : Training {
  using Training::Training;
};

Trainer::Trainer(Runtime& runtime, Model model, const OptimizerSpec& optimizer,
                 TrainerOptions options)
    : impl_(std::make_unique<Impl>(runtime, model, optimizer, options)) {}

/// An exception on its way is what the program ends with.
Trainer::~Trainer() {
  if (std::uncaught_exceptions() == 0) {
    try {
      impl_->replicas->hold_at_end(impl_->runtime);
    } catch (const std::exception& error) {
      std::cerr << "the replicas cannot be compared: " << error.what() << std::endl;
    }
  }
}

StepReport Trainer::step(const std::function<Loss()>& closure) {
  return impl_->step(closure);
}
StepReport Trainer::step(const std::vector<at::Tensor>& inputs,
                         const std::function<Loss(const std::vector<at::Tensor>&)>& closure) {
  return impl_->step(inputs, closure);
}
StepReport Trainer::step_without_data() {
  return impl_->step_without_data();
}
void Trainer::backward(const Loss& loss) {
  impl_->backward(loss);
}
StepReport Trainer::update() {
  return impl_->update();
}

void Trainer::save(std::optional<double> metric) {
  LOCKSTEP_CHECK(impl_->steps->micro_batches_in_window() == 0,
                 "save() in the middle of a window, after ",
                 impl_->steps->micro_batches_in_window(),
                 " of its micro-batches: call it when StepReport::closes_update(), or abandon()");
  impl_->steps->settle();
  impl_->require_whole_model();
  impl_->saving->save(updates(), metric);
}

std::optional<snapshot::SaveReport> Trainer::finish_saving() {
  impl_->steps->settle();
  impl_->saving->finish();
  return impl_->saving->take_ended();
}

void Trainer::save_and_leave() {
  save();
  const auto report = finish_saving();
  LOCKSTEP_CHECK_CODE(!report || !report->error, report->code, *report->error);
  throw Error(c10::str("stopped on request at update ", updates(), "; its snapshot is saved"),
              ExitCode::preempted);
}

ResumeReport Trainer::resume(const std::string& folder) {
  LOCKSTEP_CHECK(impl_->steps->micro_batches_in_window() == 0,
                 "resume() in the middle of a window: call it before training, or abandon() first");
  impl_->steps->settle();
  impl_->require_whole_model();
  return impl_->saving->resume(folder);
}

snapshot::LoadReport Trainer::load_weights(const std::string& path,
                                           const snapshot::LoadOptions& options) {
  impl_->steps->settle();
  impl_->require_whole_model();
  return impl_->saving->load_weights(path, options);
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
amp::Autocast Trainer::autocast() const {
  return impl_->steps->autocast();
}

void Trainer::abandon() {
  impl_->steps->abandon();
}
void Trainer::request_stop() noexcept {
  impl_->steps->request_stop();
}
void Trainer::stop_on_signals(const std::vector<int>& signals) {
  impl_->steps->stop_on_signals(signals);
}
bool Trainer::stop_requested() const {
  return impl_->steps->stop_requested();
}
c10::Device Trainer::device() const {
  return impl_->runtime.device();
}
int64_t Trainer::updates() const {
  return impl_->steps->updates();
}
void Trainer::set_learning_rate(double rate, std::optional<int> group) {
  impl_->updater->learning_rates().set(rate, group);
}
double Trainer::learning_rate(int group) const {
  return impl_->updater->learning_rates().of(group);
}
bool Trainer::reduce_on_plateau(double metric) {
  LOCKSTEP_CHECK(impl_->plateau != nullptr,
                 "reduce_on_plateau() needs a rule: TrainerOptions().reduce_on_plateau("
                 "ReduceOnPlateau())");
  return impl_->plateau->step(metric, impl_->updater->learning_rates());
}
void Trainer::diagnose_next_overflow() {
  impl_->steps->diagnose_next_overflow();
}
const std::string& Trainer::diagnosis() const {
  return impl_->steps->diagnosis().text();
}
std::string Trainer::gradient_table() const {
  return lockstep::gradient_table(gradient_ranges(*impl_->reducer));
}
double Trainer::loss_scale(int64_t loss) const {
  return impl_->steps->scaler_of(loss).value();
}
amp::ScalerState Trainer::scaler_state(int64_t loss) const {
  return impl_->steps->scaler_of(loss).state();
}

std::vector<std::pair<std::string, at::Tensor>> Trainer::masters() const {
  impl_->steps->settle();
  return impl_->named(impl_->arena->whole_masters());
}

std::vector<std::pair<std::string, at::Tensor>> Trainer::averaged() const {
  impl_->steps->settle();
  const std::vector<at::Tensor> flats = impl_->arena->whole_averages();
  LOCKSTEP_CHECK(!flats.empty(),
                 "averaged(): no average is kept; ask for one with TrainerOptions().ema(0.999)");
  return impl_->named(flats);
}

void Trainer::adopt_weights() {
  impl_->adopt_weights();
}

void Trainer::adopt_trainable() {
  impl_->adopt_trainable();
}

bool Trainer::replicas_agree() const {
  return impl_->replicas_agree();
}

std::string Trainer::activation_report() const {
  return impl_->activations.report();
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
