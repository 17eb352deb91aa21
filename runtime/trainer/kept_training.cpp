#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/outcome.h>
#include <lockstep/runtime/trainer/impl/kept_training.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>

#include <exception>
#include <iostream>

namespace lockstep::detail {
namespace {

StateInMemory kept(TrainerImpl& trainer, const std::string& call) {
  LOCKSTEP_CHECK(trainer.digests == nullptr, call,
                 ": TrainerOptions.digest_log would have updates that are taken back; search in a "
                 "run without it");
  LOCKSTEP_CHECK(trainer.storage.rounds() == nullptr, call,
                 ": with TrainerOptions.local_updates ranks have weights of their own; search in a "
                 "run without it");
  LOCKSTEP_CHECK(trainer.step->micro_batches_in_window() == 0, call,
                 " in the middle of a window: call it when StepReport::closes_update(), or "
                 "abandon() first");
  trainer.require_written();
  return trainer.saving->state().keep(trainer.agreement, call + ": keeping the state in memory");
}

}  // namespace

KeptTraining::KeptTraining(TrainerImpl& trainer, const std::string& call)
    : trainer_(trainer), state_(kept(trainer_, call)) {
  trainer_.step->follow_schedule(false);
  trainer_.on_trial = true;
}

/// Buckets are in flight only in a full window, and then on every rank. Votes in flight may stay:
/// the next window settles them.
KeptTraining::~KeptTraining() {
  trainer_.on_trial = false;
  trainer_.step->follow_schedule(true);
  if (ended_) {
    return;
  }
  try {
    if (trainer_.step->window_full()) {
      trainer_.storage.reducer().drain();
    }
    trainer_.step->end_window();
    trainer_.saving->state().give_back(state_);
  } catch (const std::exception& error) {
    std::cerr << "the state before the search was not restored: " << error.what() << std::endl;
  }
}

/// On a device the peers learn of a failure when they act on their last window.
std::optional<Error> KeptTraining::attempt(const std::function<void()>& trial) {
  try {
    const Outcome mine = trainer_.agreement.outcome_of([&] {
      trial();
      trainer_.step->settle();
      return std::string();
    });
    const auto failure = failure_in(trainer_.agreement.exchange(mine));
    restore();
    return failure;
  } catch (const CommunicationError&) {
    forget();
    throw;
  }
}

/// Ignores an Error of the last window, because that window is undone.
void KeptTraining::restore() {
  try {
    trainer_.step->abandon();
  } catch (const CommunicationError&) {
    throw;
  } catch (const Error&) {
    trainer_.step->abandon();
  }
  trainer_.saving->state().give_back(state_);
}

/// Each update multiplies the rate by the factor of a schedule that is a formula, so divides by it.
bool KeptTraining::set_learning_rate(double rate) {
  const Schedule& schedule = trainer_.options.schedule();
  const int64_t update = trainer_.step->updates();
  const double factor =
      schedule.kind == Schedule::Kind::function ? 1.0 : double{schedule.factor(update)};
  if (!(factor > 0.0)) {
    return false;
  }
  trainer_.storage.updater().learning_rates().set(rate / factor);
  trainer_.storage.updater().show_rates();
  return true;
}

/// On a device the peers of a rank that failed in the last window learn of that here.
void KeptTraining::give_back() {
  try {
    trainer_.step->settle();
    restore();
  } catch (const CommunicationError&) {
    forget();
    throw;
  }
  ended_ = true;
}

void KeptTraining::require_any_size(const TrainerOptions& options, const std::string& call) {
  LOCKSTEP_CHECK(!options.cuda_graph(), call,
                 ": with TrainerOptions.cuda_graph each size that is tried would take the place of "
                 "a captured window; search in a run without it");
  LOCKSTEP_CHECK(options.memory().is_unlimited(), call, ": with TrainerOptions.memory(",
                 options.memory().text(),
                 ") the plan of the largest size that is tried would stay; search without it");
  const ActivationBudget& budget = options.activation_budget();
  LOCKSTEP_CHECK(budget.is_unlimited() || budget.is_automatic(), call,
                 ": with TrainerOptions.activation_budget(", budget.text(),
                 ") the plan of the largest size that is tried would stay; search with the budget "
                 "\"automatic\", or without one");
}

const TrainerOptions& KeptTraining::options() const {
  return trainer_.options;
}

}  // namespace lockstep::detail
