#include <c10/util/Exception.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/as_error.h>
#include <lockstep/collectives/impl/life_sign.h>
#include <lockstep/collectives/nccl/in_flight_ops.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <shared_mutex>

namespace lockstep::detail {
namespace {

/// When a process exits LibTorch's CUDA library is gone before a communicator that a static object
/// keeps (that of SyncBatchNorm layers): from then on nobody asks the device.
class ProcessEnd {
 public:
  static ProcessEnd& instance() {
    static ProcessEnd& end = *new ProcessEnd;
    return end;
  }
  bool has_begun() const { return has_begun_; }
  /// Calls `question`, which must not go on when the library is gone.
  template <typename Question>
  void ask(const Question& question) {
    const std::shared_lock<std::shared_timed_mutex> asks(asks_);
    if (!has_begun_) {
      question();
    }
  }

 private:
  static constexpr std::chrono::seconds kPatience{1};  // with a device that does not answer

  /// Handlers run before what was loaded earlier is destroyed.
  ProcessEnd() {
    std::atexit([] { instance().begin(); });
  }
  void begin() {
    has_begun_ = true;
    if (asks_.try_lock_for(kPatience)) {
      asks_.unlock();
    }
  }

  std::shared_timed_mutex asks_;
  std::atomic<bool> has_begun_{false};
};

}  // namespace

InFlightOps::InFlightOps(const NcclParts& parts, std::shared_ptr<NcclComm> comm)
    : rank_(parts.host.rank()),
      size_(parts.host.size()),
      timeout_(parts.options.timeout),
      abort_deadline_(parts.abort_deadline),
      interval_(parts.watch_interval),
      lane_(parts.lane),
      on_failure_(parts.on_failure),
      comm_(std::move(comm)),
      watchdog_(parts.watch_interval, [this] { return watch(); }),
      asks_(parts.watch_interval, [this] { return ask(); }) {}

InFlightOps::~InFlightOps() {
  if (failure_ != nullptr && !is_told_) {
    std::fprintf(stderr, "lockstep: %s\n", as_error(failure_).what());
  }
  if (std::uncaught_exceptions() == 0 || comm_->aborted()) {
    return;
  }
  try {
    retire();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ops_.empty()) {
      return;
    }
  } catch (const std::exception&) {  // the device has failed
  }
  comm_->abort();  // peers may never bring their part
}

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
    std::unique_lock<std::mutex> lock(mutex_);
    while (!ops_.empty()) {
      if (!ops_.front().is_complete) {
        const std::shared_ptr<LaneMark> mark = ops_.front().mark;
        lock.unlock();
        if (!mark->passed()) {
          return;
        }
        lock.lock();
      }
      {
        const InFlightOp complete = std::move(ops_.front());
        ops_.pop_front();
        log_.set_state(complete.call.sequence, CollectiveLog::State::complete);
        lock.unlock();  // the tensors' memory goes back to the device's allocator
      }
      lock.lock();
    }
  });
}

bool InFlightOps::empty() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ops_.empty() && !asked_;
}

void InFlightOps::throw_if_failed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_ != nullptr) {
    is_told_ = true;
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
    failed_ = Clock::now();
  }
  if (!comm_->abort()) {
    ask_for_end(rank_, "ncclCommAbort has not returned");
  }
  on_failure_();
}

/// One round of questions. False once the transport has failed, or the process exits.
bool InFlightOps::ask() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_ != nullptr) {
      return false;
    }
    asked_ = Clock::now();
  }
  std::string said;
  ProcessEnd::instance().ask([&] { said = ask_device(); });
  const std::lock_guard<std::mutex> lock(mutex_);
  asked_.reset();
  trouble_ = std::move(said);
  return trouble_.empty() && !ProcessEnd::instance().has_begun();
}

/// A failure of NCCL or of the device; empty: none. enter_thread() first: a new thread is on device
/// 0, and a query there would create a CUDA context.
std::string InFlightOps::ask_device() {
  try {
    const auto on_device = lane_->enter_thread();
    std::string failure = comm_->failure();
    if (!failure.empty()) {
      return failure;
    }
    while (const std::shared_ptr<LaneMark> mark = next_mark()) {
      const bool is_complete = mark->passed();
      note(*mark, is_complete);
      if (!is_complete) {
        break;
      }
    }
    return {};
  } catch (const c10::Error& error) {  // the device has failed
    return c10::str("the device failed: ", error.what_without_backtrace());
  }
}

/// Of the oldest collective that is not known to be complete; null: there is none.
std::shared_ptr<LaneMark> InFlightOps::next_mark() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const InFlightOp& op : ops_) {
    if (!op.is_complete) {
      return op.mark;
    }
  }
  return nullptr;
}

void InFlightOps::note(const LaneMark& mark, bool is_complete) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (InFlightOp& op : ops_) {
    if (op.mark.get() == &mark) {
      op.is_complete = is_complete;
      op.denied = Clock::now();
    }
  }
}

/// One look at the clock. False once the transport has failed and nothing is left to wait for.
bool InFlightOps::watch() {
  constexpr uint64_t kLogTail = 8;
  std::string why;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_ != nullptr) {
      if (asked_ && Clock::now() - failed_ > abort_deadline_) {
        ask_for_end(rank_, "a call to the device has not returned");
        return false;
      }
      return asked_.has_value();
    }
    why = trouble_.empty() ? late_op() : trouble_;
    if (why.empty()) {
      return true;
    }
    why = c10::str("rank ", rank_, " of ", size_, ": ", why, "\nLast calls of this rank:\n",
                   log_.render(kLogTail),
                   "Look at the output of the other ranks first; restart from the last snapshot.");
  }
  end(std::make_exception_ptr(CommunicationError(why)));
  return true;
}

/// The message if the oldest collective is older than the deadline, and the device has said since
/// that it is not complete, or says nothing; else empty. So a process that was stopped for a while
/// is not late.
std::string InFlightOps::late_op() const {
  for (const InFlightOp& op : ops_) {
    if (op.is_complete) {
      continue;
    }
    const std::chrono::duration<double> age = Clock::now() - op.issued;
    const bool is_mute = asked_ && Clock::now() - *asked_ > 10 * interval_;
    if (age <= timeout_ || !(is_mute || op.denied - op.issued > timeout_)) {
      return {};
    }
    give(LifeSign::waited, to_text(WaitSign{{}, op.call.describe()}));  // ranks are unknown
    return c10::str(op.call.describe(), " timed out: not complete ", age.count(),
                    " s after its issue; a rank did not arrive, or its device is stuck",
                    is_mute ? ", and the driver of this rank's device does not answer" : "");
  }
  return {};
}

}  // namespace lockstep::detail
