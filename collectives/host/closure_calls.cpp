#include <lockstep/collectives/impl/closure_calls.h>

#include <c10/util/ScopeExit.h>
#include <lockstep/collectives/host/node_engine.h>
#include <lockstep/collectives/host/open_calls.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/transport.h>

#include <algorithm>
#include <iterator>
#include <sstream>

namespace lockstep::detail {

std::string to_text(const StepCause& cause) {
  return c10::str(cause.rank, ' ', static_cast<int>(cause.code), ' ', cause.text);
}

StepCause parse_step_cause(const std::string& text) {
  StepCause cause;
  int code = static_cast<int>(cause.code);
  std::istringstream in(text);
  in >> cause.rank >> code;
  cause.code = static_cast<ExitCode>(code);
  cause.text.assign(std::istreambuf_iterator<char>(in.ignore()), {});
  return cause;
}

namespace {

/// Without a text: a communicator of the rank was destroyed while an exception unwound its stack.
PeerStepFailed failure_of(const StepCause& cause) {
  return {cause.rank, Error(cause.text.empty() ? "an exception" : cause.text, cause.code)};
}

}  // namespace

ClosureCalls::ClosureCalls(Communicator meeting) : meeting_(std::move(meeting)) {}

void ClosureCalls::require_present() const {
  if (lost_) {
    throw CommunicationError(*lost_);
  }
  if (cause_ && !meets_) {
    throw failure_of(*cause_);
  }
}

void ClosureCalls::leave(const StepCause& cause) {
  if (cause_) {
    return;
  }
  cause_ = cause;
  for (const std::shared_ptr<NodeEngine>& engine : engines()) {
    if (!engine->has_failed()) {
      engine->leave_step(round_, to_text(cause));
    }
  }
}

SharedError ClosureCalls::meet(const std::optional<Error>& mine) {
  if (lost_) {
    throw CommunicationError(*lost_);
  }
  leave(mine ? StepCause{rank(), mine->code(), mine->what()}
             : StepCause{rank(), ExitCode::usage, ""});
  const auto end = c10::make_scope_exit([this] { meets_ = false; });
  meets_ = true;
  try {
    const auto failure = failure_in(Agreement(meeting_).exchange({mine, ""}));
    settle();
    const StepCause cause = *cause_;
    cause_.reset();
    ++round_;
    return {failure.value_or(Error(failure_of(cause).what(), cause.code)), mine.has_value()};
  } catch (const CommunicationError& error) {
    const bool is_known = !cause_->text.empty();
    lost_ = CommunicationError(
        c10::str(is_known ? c10::str("rank ", cause_->rank, ": ", cause_->text, "; and then ") : "",
                 "the ranks could not leave the step together: ", error.what()),
        is_known ? cause_->code : error.code());
    cause_.reset();
    throw CommunicationError(*lost_);
  }
}

void ClosureCalls::settle() {
  std::string mine;
  const std::vector<std::shared_ptr<NodeEngine>> all = engines();
  for (const std::shared_ptr<NodeEngine>& engine : all) {
    mine += engine->has_failed() ? "" : engine->open_calls().to_text();
  }
  const auto calls = compare_calls(meeting_.all_gather_bytes(mine));
  const auto why = std::make_exception_ptr(failure_of(*cause_));
  for (const std::shared_ptr<NodeEngine>& engine : all) {
    if (engine->has_failed()) {
      continue;
    }
    try {
      engine->settle(calls.at(engine->name()), why);
    } catch (const CommunicationError&) {
      throw;
    } catch (const std::exception&) {
      // The ranks have made different calls, and the communicator says so from now on.
    }
  }
}

void ClosureCalls::add(const std::shared_ptr<NodeEngine>& engine) {
  engines_.push_back(engine);
}

void ClosureCalls::advance() {
  for (const std::shared_ptr<NodeEngine>& engine : engines()) {
    if (engine->has_failed()) {
      continue;
    }
    try {
      engine->advance();
    } catch (const std::exception&) {
      // The engine keeps it for the next call.
    }
  }
}

std::vector<std::shared_ptr<NodeEngine>> ClosureCalls::engines() {
  std::vector<std::shared_ptr<NodeEngine>> living;
  for (auto engine = engines_.begin(); engine != engines_.end();) {
    if (auto each = engine->lock()) {
      living.push_back(std::move(each));
      ++engine;
    } else {
      engine = engines_.erase(engine);
    }
  }
  return living;
}

std::shared_ptr<ClosureCalls> closure_calls(const Communicator& communicator) {
  return communicator.transport().closure_calls();
}

Communicator with_closure_calls(const Communicator& world) {
  world.transport().share_closure_calls();
  return world;
}

}  // namespace lockstep::detail
