#include <lockstep/collectives/host/attendance.h>

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

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

PeerStepFailed failure_of(const StepCause& cause) {
  return {cause.rank, Error(cause.text.empty() ? "an exception" : cause.text, cause.code)};
}

std::vector<std::shared_ptr<LeavableCalls>> Attendance::all() {
  std::vector<std::shared_ptr<LeavableCalls>> living;
  for (auto calls = all_.begin(); calls != all_.end();) {
    if (auto each = calls->lock()) {
      living.push_back(std::move(each));
      ++calls;
    } else {
      calls = all_.erase(calls);
    }
  }
  return living;
}

void Attendance::advance() {
  for (const std::shared_ptr<LeavableCalls>& calls : all()) {
    if (settles_ || calls->has_failed()) {
      continue;
    }
    try {
      calls->advance();
    } catch (const std::exception&) {
      // The communicator keeps it for its next call.
    }
  }
}

void Attendance::add(const std::shared_ptr<LeavableCalls>& calls) {
  world_ = world_ == nullptr ? calls.get() : world_;
  all_.push_back(calls);
}

void Attendance::keep_destroyed(std::shared_ptr<LeavableCalls> calls) {
  destroyed_.push_back(std::move(calls));
}

void Attendance::let_go_of_destroyed() {
  for (const std::shared_ptr<LeavableCalls>& calls : std::exchange(destroyed_, {})) {
    if (!calls->has_failed()) {
      calls->leave_step(round_, to_text(StepCause{rank_, ExitCode::peer_lost, ""}));
    }
    calls->leave();
  }
}

void Attendance::require_present() {
  let_go_of_destroyed();
  if (lost_) {
    throw CommunicationError(*lost_);
  }
  if (cause_ && !meets_) {
    throw failure_of(*cause_);
  }
}

void Attendance::leave(const StepCause& cause) {
  if (cause_) {
    return;
  }
  cause_ = cause;
  for (const std::shared_ptr<LeavableCalls>& calls : all()) {
    if (!calls->has_failed()) {
      calls->leave_step(round_, to_text(cause));
    }
  }
}

void Attendance::leave_all_but(const std::vector<std::string>& names, const StepCause& cause) {
  for (const std::shared_ptr<LeavableCalls>& calls : all()) {
    const bool stays =
        is_world(*calls) || std::find(names.begin(), names.end(), calls->name()) != names.end();
    if (!calls->has_failed() && !stays) {
      calls->leave_step(round_, to_text(cause));
    }
  }
}

void Attendance::begin_meeting() {
  meets_ = !lost_;
  require_present();
}

void Attendance::end_meeting() {
  meets_ = false;
  settles_ = false;
  cause_.reset();
  end_round();
}

void Attendance::lose(const CommunicationError& error) {
  meets_ = false;
  cause_.reset();
  lost_ = error;
}

}  // namespace lockstep::detail
