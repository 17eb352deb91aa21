#include <c10/util/Exception.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/life_sign.h>
#include <lockstep/collectives/nccl/in_flight_ops.h>

#include <cstdio>

namespace lockstep::detail {

InFlightOps::InFlightOps(const NcclParts& parts, std::shared_ptr<NcclComm> comm)
    : rank_(parts.host.rank()),
      size_(parts.host.size()),
      timeout_(parts.options.timeout),
      lane_(parts.lane),
      on_failure_(parts.on_failure),
      comm_(std::move(comm)),
      watchdog_(parts.watch_interval, [this] { return watch(); }) {}

void InFlightOps::issue(CollectiveCall& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  log_.issue(call);
}

void InFlightOps::start(const CollectiveCall& call, Tensors tensors,
                        std::shared_ptr<LaneMark> mark) {
  const std::lock_guard<std::mutex> lock(mutex_);
  log_.set_state(call.sequence, CollectiveLog::State::running);
  ops_.push_back({call, std::move(tensors), std::move(mark), Clock::now()});
}

void InFlightOps::note_captured(const CollectiveCall& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  log_.set_state(call.sequence, CollectiveLog::State::captured);
}

void InFlightOps::retire() {
  guarded([this] {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (!ops_.empty() && ops_.front().mark->passed()) {
      log_.set_state(ops_.front().call.sequence, CollectiveLog::State::complete);
      ops_.pop_front();
    }
  });
}

bool InFlightOps::empty() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ops_.empty();
}

void InFlightOps::throw_if_failed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_ != nullptr) {
    for (const InFlightOp& op : ops_) {
      log_.set_state(op.call.sequence, CollectiveLog::State::failed);
    }
    std::rethrow_exception(failure_);
  }
}

void InFlightOps::fail(const std::exception_ptr& error) {
  end(error);
  throw_if_failed();
  std::rethrow_exception(error);
}

void InFlightOps::end(const std::exception_ptr& error) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_ != nullptr) {
      return;
    }
    failure_ = error;
  }
  if (!comm_->abort()) {
    std::fprintf(stderr, "lockstep: rank %d: ncclCommAbort has not returned; end this process\n",
                 rank_);
  }
  on_failure_();
}

/// One check by the watchdog's thread. False once the transport has failed.
bool InFlightOps::watch() {
  constexpr uint64_t kLogTail = 8;
  std::string why = trouble();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_ != nullptr) {
      return false;
    }
    if (why.empty()) {
      return true;
    }
    why = c10::str("rank ", rank_, " of ", size_, ": ", why, "\nLast calls of this rank:\n",
                   log_.render(kLogTail),
                   "Look at the output of the other ranks first; restart from the last snapshot.");
  }
  end(std::make_exception_ptr(CommunicationError(why)));
  return false;
}

/// A failure of NCCL or of the device, or a late peer; empty: none. enter_thread() first: a new
/// thread is on device 0, and a query there would create a CUDA context.
std::string InFlightOps::trouble() {
  try {
    lane_->enter_thread();
    const std::string failure = comm_->failure();
    if (!failure.empty()) {
      return failure;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    return late_op();
  } catch (const c10::Error& error) {  // the device has failed
    return c10::str("the device failed: ", error.what_without_backtrace());
  }
}

/// The message if the oldest collective is older than the deadline; else empty.
std::string InFlightOps::late_op() const {
  for (const InFlightOp& op : ops_) {
    if (op.mark->passed()) {
      continue;
    }
    const std::chrono::duration<double> age = Clock::now() - op.issued;
    if (age <= timeout_) {
      return {};
    }
    give(LifeSign::waited, to_text(WaitSign{{}, op.call.describe()}));  // ranks are unknown
    return c10::str(op.call.describe(), " timed out: not complete ", age.count(),
                    " s after its issue; a rank did not arrive, or its device is stuck");
  }
  return {};
}

}  // namespace lockstep::detail
