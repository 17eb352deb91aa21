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
  LOCKSTEP_CHECK(training.steps->micro_batches_in_window() == 0, call,
                 " in the middle of a window: call it when StepReport::closes_update(), or "
                 "abandon() first");
  training.steps->settle();
  training.agreement.raise_if_any(training.storage.watch().departure());
  return training.saving->state().keep();
}

}  // namespace

KeptTraining::KeptTraining(Trainer& trainer, const std::string& call)
    : training_(*trainer.training_), state_(kept(training_, call)) {
  training_.steps->follow_schedule(false);
  training_.on_trial = true;
}

/// After a CommunicationError no collective can be made.
KeptTraining::~KeptTraining() {
  training_.on_trial = false;
  training_.steps->follow_schedule(true);
  if (ended_) {
    return;
  }
  try {
    restore();
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
void KeptTraining::set_learning_rate(double rate) {
  const Schedule& schedule = training_.options.schedule();
  const int64_t update = training_.steps->updates();
  const double factor =
      schedule.kind == Schedule::Kind::function ? 1.0 : double{schedule.factor(update)};
  LOCKSTEP_CHECK(factor > 0.0, "find_learning_rate: the schedule's factor is 0 after update ",
                 update, "; search before the run, or with another schedule");
  training_.storage.updater().learning_rates().set(rate / factor);
}

void KeptTraining::give_back() {
  restore();
  ended_ = true;
}

}  // namespace lockstep::detail
