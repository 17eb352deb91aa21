#include <lockstep/collectives/impl/closure_calls.h>

#include <lockstep/collectives/host/attendance.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/transport.h>

namespace lockstep::detail {

ClosureCalls::ClosureCalls(std::shared_ptr<Attendance> attendance, std::string name, bool can_meet)
    : attendance_(std::move(attendance)),
      name_(std::move(name)),
      can_meet_(can_meet),
      meeting_(attendance_->meeting()) {}

uint64_t ClosureCalls::round() const {
  return attendance_->round();
}

bool ClosureCalls::is_away() const {
  return attendance_->is_away();
}

SharedError ClosureCalls::meet(const std::optional<Error>& mine) {
  attendance_->begin_meeting();
  attendance_->leave(mine ? StepCause{meeting_.rank(), mine->code(), mine->what()}
                          : StepCause{meeting_.rank(), ExitCode::peer_lost, ""});
  const StepCause cause = attendance_->cause();
  try {
    const auto failure = failure_in(Agreement(meeting_).exchange({mine, ""}));
    attendance_->begin_settling();
    settle();
    attendance_->end_meeting();
    return {failure.value_or(Error(failure_of(cause).what(), cause.code)), mine.has_value()};
  } catch (const CommunicationError& error) {
    const bool is_known = !cause.text.empty();
    const CommunicationError lost(
        c10::str(is_known ? c10::str("rank ", cause.rank, ": ", cause.text, "; and then ") : "",
                 "the ranks could not leave the step together: ", error.what()),
        is_known ? cause.code : error.code());
    attendance_->lose(lost);
    throw CommunicationError(lost);
  }
}

void ClosureCalls::tell_peers(const Error& mine, const ClosureCalls& devices) {
  attendance_->leave_all_but({name_, devices.name_}, {meeting_.rank(), mine.code(), mine.what()});
}

void ClosureCalls::end_round() {
  attendance_->end_round();
}

CommunicationError ClosureCalls::left_behind() const {
  const StepCause& cause = attendance_->cause();
  return {c10::str("rank ", meeting_.rank(), ": rank ", cause.rank, " has failed in this step: ",
                   cause.text, "; it is missing in a collective of the closure, which cannot be ",
                   "abandoned in device memory; restart from the last snapshot"),
          cause.code};
}

void ClosureCalls::settle() const {
  std::string mine;
  const auto all = attendance_->all();
  for (const std::shared_ptr<LeavableCalls>& each : all) {
    mine += each->has_failed() ? "" : each->open_calls().to_text();
  }
  const auto of_ranks = compare_calls(meeting_.all_gather_bytes(mine));
  const auto why = std::make_exception_ptr(failure_of(attendance_->cause()));
  for (const std::shared_ptr<LeavableCalls>& each : all) {
    if (each->has_failed()) {
      continue;
    }
    try {
      each->settle(of_ranks.at(each->name()), why);
    } catch (const CommunicationError&) {
      throw;
    } catch (const std::exception&) {
      // The ranks have made different calls, and the communicator says so from now on.
    }
  }
}

std::optional<ClosureCalls> closure_calls(const Communicator& communicator) {
  auto attendance = communicator.transport().attendance();
  return attendance == nullptr
             ? std::nullopt
             : std::optional<ClosureCalls>(std::in_place, std::move(attendance),
                                           communicator.transport().attended_name(),
                                           communicator.transport().can_be_left());
}

Communicator with_closure_calls(const Communicator& world) {
  if (world.transport().can_be_left()) {
    const std::shared_ptr<Transport> meeting = world.transport().split(0, world.rank());
    const auto attendance = std::make_shared<Attendance>(meeting, world.rank());
    meeting->on_idle([weak = std::weak_ptr(attendance)] {
      if (const auto living = weak.lock()) {
        living->advance();
      }
    });
    world.transport().attend(attendance, "world");
  }
  return world;
}

}  // namespace lockstep::detail
