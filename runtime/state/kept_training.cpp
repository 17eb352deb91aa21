#include <lockstep/collectives/check.h>
#include <lockstep/collectives/core/outcome.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/state/kept_training.h>
#include <lockstep/runtime/step/training.h>

#include <exception>
#include <iostream>

namespace lockstep::detail {
namespace {

StateInMemory kept(Training& training, const std::string& call) {
  LOCKSTEP_CHECK(training.digests == nullptr, call,
                 ": TrainerOptions.digest_log would have updates that are taken back; search in a "
                 "run without it");
  LOCKSTEP_CHECK(training.storage.rounds() == nullptr, call,
                 ": with TrainerOptions.local_updates ranks have weights of their own; search in a "
                 "run without it");
  LOCKSTEP_CHECK(training.steps->micro_batches_in_window() == 0, call,
                 " in the middle of a window: call it when StepReport::closes_update(), or "
                 "abandon() first");
  training.steps->settle();
  training.agreement.raise_if_any(training.storage.watch().departure());
  training.storage.written().take();
  return training.saving->state().keep(training.agreement, call + ": keeping the state in memory");
}

}  // namespace

KeptTraining::KeptTraining(Trainer& trainer, const std::string& call)
    : KeptTraining(training_of(trainer), call) {}

Training& KeptTraining::training_of(const Trainer& trainer) {
  return *trainer.training_;
}

KeptTraining::KeptTraining(Training& training, const std::string& call)
    : training_(training), state_(kept(training_, call)) {
  training_.steps->follow_schedule(false);
  training_.on_trial = true;
}

/// Buckets are in flight in a full window only, and on every rank. Votes in flight may stay: the
/// next window begins with them.
KeptTraining::~KeptTraining() {
  training_.on_trial = false;
  training_.steps->follow_schedule(true);
  if (ended_) {
    return;
  }
  try {
    if (training_.steps->window_full()) {
      training_.storage.reducer().drain();
    }
    training_.steps->end_window();
    training_.saving->state().give_back(state_);
  } catch (const std::exception& error) {
    std::cerr << "the state before the search was not restored: " << error.what() << std::endl;
  }
}

/// On a device the peers learn of a failure when they act on their last window.
std::optional<Error> KeptTraining::attempt(const std::function<void()>& trial) {
  try {
    const Outcome mine = training_.agreement.outcome_of([&] {
      trial();
      training_.steps->settle();
      return std::string();
    });
    const auto failure = failure_in(training_.agreement.exchange(mine));
    restore();
    return failure;
  } catch (const CommunicationError&) {
    forget();
    throw;
  }
}

/// What the last window tells is no matter any more: it is taken back.
void KeptTraining::restore() {
  try {
    training_.steps->abandon();
  } catch (const CommunicationError&) {
    throw;
  } catch (const Error&) {
    training_.steps->abandon();
  }
  training_.saving->state().give_back(state_);
}

/// A schedule that is a formula is part of the rule of each update; here its factor is taken out.
bool KeptTraining::set_learning_rate(double rate) {
  const Schedule& schedule = training_.options.schedule();
  const int64_t update = training_.steps->updates();
  const double factor =
      schedule.kind == Schedule::Kind::function ? 1.0 : double{schedule.factor(update)};
  if (!(factor > 0.0)) {
    return false;
  }
  training_.storage.updater().learning_rates().set(rate / factor);
  training_.storage.updater().show_rates();
  return true;
}

/// On a device the peers of a rank that failed in the last window learn of that here.
void KeptTraining::give_back() {
  try {
    training_.steps->settle();
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
  const ActivationBudget& budget = options.activation_budget();
  LOCKSTEP_CHECK(budget.is_unlimited() || budget.is_automatic(), call,
                 ": with TrainerOptions.activation_budget(", budget.text(),
                 ") the plan of the largest size that is tried would stay; search with the budget "
                 "\"automatic\", or without one");
}

const TrainerOptions& KeptTraining::options() const {
  return training_.options;
}

}  // namespace lockstep::detail
