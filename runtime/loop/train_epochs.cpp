#include <lockstep/collectives/check.h>
#include <lockstep/runtime/loop/impl/epoch_loop.h>
#include <lockstep/runtime/progress.h>
#include <lockstep/runtime/step/impl/option_fields.h>
#include <lockstep/runtime/train_epochs.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <utility>

namespace lockstep {
namespace detail {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::filesystem::path folder_of(const std::string& name) {
  return (std::filesystem::path(name) / "").lexically_normal();
}

void check(const EpochOptions& options, const std::string& saves_to) {
  options.validate();
  LOCKSTEP_CHECK(
      !saves_to.empty() || options.resume(),
      "train_epochs: with EpochOptions::resume(false) a Trainer must know where to save: "
      "give it TrainerOptions().snapshots(SnapshotOptions().folder(\"",
      options.folder(), "\"))");
  LOCKSTEP_CHECK(saves_to.empty() || folder_of(saves_to) == folder_of(options.folder()),
                 "train_epochs: EpochOptions::folder is ", options.folder(),
                 ", but the Trainer saves to SnapshotOptions::folder ", saves_to,
                 ", where the run could not be resumed; name the same folder in both");
}

const EpochOptions& checked(const EpochOptions& options, const detail::TrainerImpl& trainer) {
  trainer.agreement.attempt([&] { check(options, trainer.options.snapshots().folder()); });
  detail::require_same_fields("train_epochs", detail::fields_of(options), trainer.agreement);
  return options;
}

}  // namespace

EpochLoop::EpochLoop(Trainer& trainer, const EpochOptions& options)
    : trainer_(trainer),
      options_(std::make_unique<EpochOptions>(checked(options, trainer.impl()))),
      log_(trainer, options.folder(), options.log()),
      save_timer_(trainer.runtime().control(), 60.0 * options.save_every_minutes()),
      window_(trainer.impl().options.accumulate()) {
  if (options_->resume()) {
    trainer_.resume(options_->folder());
  }
  updates_ = most_updates_ = trainer_.updates();
  const EarlyStopping* stopping = options_->early_stopping();
  is_over_ = (options_->updates() > 0 && updates_ >= options_->updates()) ||
             (stopping != nullptr && stopping->stops());
  trainer_.stop_on_signals();
}

EpochLoop::~EpochLoop() = default;

void EpochLoop::begin(int64_t epoch, int64_t batches, int64_t left) {
  epoch_ = epoch;
  batches_ = batches;
  left_ = left;
  steps_ = windows_ = 0;
  seconds_ = 0.0;
  show_progress();
}

void EpochLoop::show_progress() {
  began_ = now();
  progress_ = std::make_unique<Progress>("epoch " + std::to_string(epoch_ + 1), batches_,
                                         trainer_.runtime().is_main());
  progress_->begin_at(batches_ - left_);
}

void EpochLoop::stop_clock() {
  if (progress_) {
    progress_.reset();
    seconds_ += now() - began_;
  }
}

void EpochLoop::after_step(const StepReport& report, const std::function<Evaluation()>& validate) {
  ++steps_;
  --left_;
  is_validated_ = false;
  log_.step(report);
  if (options_->on_step()) {
    options_->on_step()(report, log_);
  }
  is_window_open_ = !report.closes_update();
  most_updates_ += is_window_open_ ? 0 : 1;
  // Read only if needed: on a device report.update() waits for the window.
  const bool may_be_last = options_->updates() > 0 && most_updates_ >= options_->updates();
  const bool counts = options_->validate_every() > 0 || options_->save_every() > 0 || may_be_last;
  const bool made_update =
      counts && !is_window_open_ && report.update() != std::exchange(updates_, report.update());
  windows_ += is_window_open_ ? 0 : 1;
  progress_->show(batches_ - left_, [&] {
    return Progress::Values{{"loss", report.loss()}, {"lr", report.learning_rate()}};
  });
  is_over_ = may_be_last && !is_window_open_ && report.update() >= options_->updates();
  if (is_window_open_ || left_ < window_ || is_over_) {
    return;  // after the epoch's last update end() saves, with the metric
  }
  if (trainer_.stop_requested()) {
    trainer_.save_and_leave();
  }
  const auto is_due = [&](int64_t every) {
    return every > 0 && made_update && report.update() % every == 0;
  };
  if (is_due(options_->validate_every())) {
    stop_clock();
    validate_and_save(validate, report.update());
    if (!is_over_) {
      show_progress();
    }
  } else if (const bool is_time = save_timer_.is_due(); is_time || is_due(options_->save_every())) {
    save();
  }
}

void EpochLoop::save(std::optional<MetricValue> metric) {
  trainer_.save(metric);
  save_timer_.restart();
}

void EpochLoop::end(const std::function<Evaluation()>& validate) {
  stop_clock();
  LOCKSTEP_CHECK(windows_ > 0 || steps_ < batches_, "train_epochs: an epoch of ", batches_,
                 " batches on each rank is less than an update of ", window_,
                 " micro-batches; lower TrainerOptions::accumulate or LoaderOptions::batch_size");
  if (is_window_open_) {
    trainer_.abandon();
    is_window_open_ = false;
  }
  if (steps_ > 0) {
    log_.log("epoch_seconds", seconds_);
  }
  if (!is_validated_) {
    validate_and_save(validate);
  }
  if (trainer_.stop_requested()) {
    trainer_.save_and_leave();
  }
}

void EpochLoop::validate_and_save(const std::function<Evaluation()>& validate,
                                  std::optional<int64_t> update) {
  trainer_.finish_round();
  const Evaluation found = validate();
  LOCKSTEP_CHECK(!found.values.empty(),
                 "train_epochs: validate() returned no value; pass a metric to evaluate()");
  for (const auto& [name, value] : found.values) {
    log_.log("validation/" + name, value);
  }
  if (!update && options_->on_epoch()) {
    options_->on_epoch()(epoch_, found, log_);
  }
  log_.flush();
  const MetricValue metric = options_->metric().empty() ? found : found.metric(options_->metric());
  EarlyStopping* stopping = options_->early_stopping();
  const bool stops = stopping != nullptr && stopping->update(metric);
  save(metric);
  is_over_ = is_over_ || stops;
  is_validated_ = true;
  if (trainer_.runtime().is_main()) {
    std::cout << "epoch " << epoch_ + 1
              << (update ? ", update " + std::to_string(*update) : std::string()) << ": "
              << found.text()
              << (stops
                      ? "; no longer better than " + plain_text(stopping->best()) + ", the run ends"
                      : std::string())
              << std::endl;
  }
}

}  // namespace detail

void EpochOptions::validate() const {
  LOCKSTEP_CHECK(!folder().empty(), "EpochOptions: folder is empty; name the folder of the run");
  detail::require_ranges(detail::rows_of(*this));
}

}  // namespace lockstep
