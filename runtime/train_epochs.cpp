#include <lockstep/runtime/progress.h>
#include <lockstep/runtime/train_epochs.h>
#include <lockstep/runtime/trainer.h>

#include <chrono>
#include <iostream>

namespace lockstep {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const EpochOptions& checked(const EpochOptions& options) {
  options.validate();
  return options;
}

}  // namespace

void EpochOptions::validate() const {
  LOCKSTEP_CHECK(!folder().empty(), "EpochOptions: folder is empty; name the folder of the run");
  LOCKSTEP_CHECK(epochs() >= 1, "EpochOptions: epochs is ", epochs(), ", it must be at least 1");
  LOCKSTEP_CHECK(save_every() >= 0, "EpochOptions: save_every is ", save_every(),
                 ", it must not be negative");
}

namespace detail {

EpochLoop::EpochLoop(Trainer& trainer, const EpochOptions& options)
    : trainer_(trainer), options_(checked(options)), log_(trainer, options.folder()) {
  if (options_.resume()) {
    trainer_.resume(options_.folder());
  }
  trainer_.stop_on_signals();
}

EpochLoop::~EpochLoop() = default;

void EpochLoop::begin(int64_t epoch, int64_t batches) {
  epoch_ = epoch;
  batches_ = batches;
  steps_ = 0;
  began_ = now();
  progress_ = std::make_unique<Progress>("epoch " + std::to_string(epoch + 1), batches,
                                         trainer_.runtime().is_main());
}

void EpochLoop::after_step(const StepReport& report, int64_t next) {
  ++steps_;
  log_.step(report);
  is_window_open_ = !report.closes_update();
  progress_->show(next == 0 ? batches_ : next, [&] {
    return Progress::Values{{"loss", report.loss()}, {"lr", report.learning_rate()}};
  });
  if (next == 0 || is_window_open_) {
    return;
  }
  if (trainer_.stop_requested()) {
    trainer_.save_and_leave();
  }
  if (options_.save_every() > 0 && report.update() % options_.save_every() == 0) {
    trainer_.save();
  }
}

void EpochLoop::end(const std::function<Evaluation()>& validate) {
  progress_.reset();
  if (is_window_open_) {
    trainer_.abandon();
    is_window_open_ = false;
  }
  if (steps_ > 0) {
    log_.log("epoch_seconds", now() - began_);
  }
  const Evaluation found = validate();
  LOCKSTEP_CHECK(!found.values.empty(),
                 "train_epochs: validate() returned no value; pass a metric to evaluate()");
  for (const auto& [name, value] : found.values) {
    log_.log("validation/" + name, value);
  }
  log_.flush();
  trainer_.save(found.values[0].second);
  if (trainer_.runtime().is_main()) {
    std::cout << "epoch " << epoch_ + 1 << ": " << found.text() << std::endl;
  }
  if (trainer_.stop_requested()) {
    trainer_.save_and_leave();
  }
}

}  // namespace detail
}  // namespace lockstep
