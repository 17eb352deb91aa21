#include <lockstep/collectives/nccl/averaging.h>
#include <lockstep/collectives/nccl/call_comparison.h>
#include <lockstep/collectives/nccl/nccl_comm.h>
#include <lockstep/collectives/nccl/nccl_meeting.h>
#include <lockstep/collectives/nccl/nccl_transport.h>
#include <lockstep/collectives/nccl/registered_memory.h>
#include <lockstep/collectives/nccl/watchdog.h>
#include <lockstep/collectives/solo_transport.h>
#include <lockstep/collectives/work_operation.h>

#include <array>
#include <cstdio>
#include <deque>
#include <mutex>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using Tensors = std::array<at::Tensor, 2>;

CollectiveCall make_call(Verb verb, const at::Tensor& tensor) {
  CollectiveCall call{verb, tensor.scalar_type()};
  call.numel = tensor.numel();
  return call;
}

CollectiveCall make_call(Verb verb, const at::Tensor& tensor, ReduceOp op) {
  CollectiveCall call = make_call(verb, tensor);
  call.op = op.kind();
  call.predivide = op.predivide_factor();
  return call;
}

class NcclTransport final : public Transport, public std::enable_shared_from_this<NcclTransport> {
 public:
  NcclTransport(NcclParts parts, std::shared_ptr<NcclComm> comm)
      : parts_(std::move(parts)),
        comm_(std::move(comm)),
        comparison_(parts_.host, parts_.options.check),
        watchdog_(std::make_unique<Watchdog>(parts_.watch_interval, [this] { return watch(); })) {}
  ~NcclTransport() override;

  const char* name() const override { return "nccl"; }
  int rank() const override { return parts_.host.rank(); }
  int size() const override { return parts_.host.size(); }
  int local_rank() const override { return parts_.host.local_rank(); }
  int local_size() const override { return parts_.host.local_size(); }

  std::shared_ptr<Operation> all_reduce(const at::Tensor& tensor, ReduceOp op) override;
  std::shared_ptr<Operation> reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                            ReduceOp op) override;
  std::shared_ptr<Operation> all_gather(const at::Tensor& output, const at::Tensor& input) override;
  std::shared_ptr<Operation> broadcast(const at::Tensor& tensor, int root) override;
  std::shared_ptr<Operation> barrier() override;
  std::shared_ptr<Transport> split(int color, int key) override;
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override;
  void progress() override;
  const CollectiveLog& log() const override { return log_; }

 private:
  /// A collective on the lane.
  struct Flight {
    CollectiveCall call;
    Tensors tensors;
    std::shared_ptr<LaneMark> mark;
    Clock::time_point issued;
  };
  class FlightOperation;

  bool on_host(const at::Tensor& tensor) const { return tensor.device() != parts_.lane->device(); }
  int operator_for(ReduceOp op, at::ScalarType dtype, double before);
  void require_reducible(const CollectiveCall& call) const;
  void issue(CollectiveCall& call);
  template <typename Enqueue>
  std::shared_ptr<Operation> launch(CollectiveCall call, Tensors tensors, const Enqueue& enqueue);
  template <typename Call>
  void call_nccl(const char* what, const Call& call);
  template <typename Body>
  void guarded(const Body& body);

  void confirm(uint64_t sequence);
  void retire();
  void throw_if_failed();
  [[noreturn]] void fail(const std::exception_ptr& error);
  void end(const std::exception_ptr& error);
  bool watch();
  std::string late_flight() const;

  NcclParts parts_;
  std::shared_ptr<NcclComm> comm_;
  CallComparison comparison_;
  std::mutex mutex_;  // of what the watchdog reads too
  CollectiveLog log_;
  std::deque<Flight> flights_;
  std::exception_ptr failure_;
  std::unique_ptr<Watchdog> watchdog_;
};

class NcclTransport::FlightOperation final : public Operation {
 public:
  FlightOperation(std::shared_ptr<NcclTransport> transport, uint64_t sequence,
                  std::shared_ptr<LaneMark> mark)
      : transport_(std::move(transport)), sequence_(sequence), mark_(std::move(mark)) {}
  bool test() override {
    transport_->progress();
    return mark_->passed();
  }
  void wait() override {
    transport_->confirm(sequence_);
    mark_->hold_current();
  }

 private:
  std::shared_ptr<NcclTransport> transport_;
  uint64_t sequence_;
  std::shared_ptr<LaneMark> mark_;
};

NcclTransport::~NcclTransport() {
  watchdog_.reset();
  comm_.reset();  // waits for what is under way, before its tensors go
}

std::shared_ptr<Operation> NcclTransport::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  if (on_host(tensor)) {
    return operation_of(parts_.host.all_reduce(tensor, op));
  }
  const CollectiveCall call = make_call(Verb::all_reduce, tensor, op);
  require_reducible(call);
  return launch(call, {tensor, {}}, [&](const Averaging& factors) {
    const int sum = operator_for(op, call.dtype, factors.before);
    call_nccl("ncclAllReduce", [&](NcclApi& api, NcclApi::Handle comm) {
      return api.all_reduce(tensor.data_ptr(), tensor.data_ptr(),
                            static_cast<size_t>(tensor.numel()), call.dtype, sum, comm,
                            parts_.lane->stream());
    });
    return tensor;
  });
}

std::shared_ptr<Operation> NcclTransport::reduce_scatter(const at::Tensor& output,
                                                         const at::Tensor& input, ReduceOp op) {
  if (on_host(input)) {
    return operation_of(parts_.host.reduce_scatter(output, input, op));
  }
  const CollectiveCall call = make_call(Verb::reduce_scatter, input, op);
  require_reducible(call);
  return launch(call, {output, input}, [&](const Averaging& factors) {
    const int sum = operator_for(op, call.dtype, factors.before);
    call_nccl("ncclReduceScatter", [&](NcclApi& api, NcclApi::Handle comm) {
      return api.reduce_scatter(input.data_ptr(), output.data_ptr(),
                                static_cast<size_t>(output.numel()), call.dtype, sum, comm,
                                parts_.lane->stream());
    });
    return output;
  });
}

std::shared_ptr<Operation> NcclTransport::all_gather(const at::Tensor& output,
                                                     const at::Tensor& input) {
  if (on_host(input)) {
    return operation_of(parts_.host.all_gather(output, input));
  }
  return launch(make_call(Verb::all_gather, input), {output, input}, [&](const Averaging&) {
    call_nccl("ncclAllGather", [&](NcclApi& api, NcclApi::Handle comm) {
      return api.all_gather(input.data_ptr(), output.data_ptr(), input.nbytes(), comm,
                            parts_.lane->stream());
    });
    return at::Tensor();
  });
}

std::shared_ptr<Operation> NcclTransport::broadcast(const at::Tensor& tensor, int root) {
  if (on_host(tensor)) {
    return operation_of(parts_.host.broadcast(tensor, root));
  }
  CollectiveCall call = make_call(Verb::broadcast, tensor);
  call.root = root;
  return launch(call, {tensor, {}}, [&](const Averaging&) {
    call_nccl("ncclBroadcast", [&](NcclApi& api, NcclApi::Handle comm) {
      return api.broadcast(tensor.data_ptr(), tensor.nbytes(), root, comm, parts_.lane->stream());
    });
    return at::Tensor();
  });
}

std::shared_ptr<Operation> NcclTransport::barrier() {
  throw_if_failed();
  return operation_of(parts_.host.barrier());
}

std::shared_ptr<Transport> NcclTransport::split(int color, int key) {
  throw_if_failed();
  CollectiveCall call{Verb::split};
  issue(call);
  NcclParts parts = parts_;
  std::shared_ptr<NcclComm> comm;
  guarded([&] {
    comparison_.require(call.sequence);
    parts_.lane->drain();  // NCCL splits idle communicators only
    throw_if_failed();
    parts.host = parts_.host.split(color, key);
    const bool alone = color < 0 || parts.host.size() == 1;
    const NcclComm::Place place =
        alone ? NcclComm::Place{0, 1} : NcclComm::Place{parts.host.rank(), parts.host.size()};
    comm = comm_->split(alone ? -1 : color, key, place, [this] { comparison_.look(); });
  });
  if (color < 0) {
    return nullptr;
  }
  return comm == nullptr ? make_solo_transport(parts_.lane->device())
                         : std::make_shared<NcclTransport>(std::move(parts), std::move(comm));
}

at::Tensor NcclTransport::allocate(int64_t numel, at::ScalarType dtype) {
  throw_if_failed();
  CollectiveCall call{Verb::allocate, dtype};
  call.numel = numel;
  issue(call);
  guarded([&] { comparison_.require(call.sequence); });
  return registered_zeros(comm_, parts_.lane, parts_.host, numel, dtype);
}

void NcclTransport::progress() {
  throw_if_failed();
  guarded([&] {
    parts_.host.progress();
    comparison_.look();
  });
  retire();
}

int NcclTransport::operator_for(ReduceOp op, at::ScalarType dtype, double before) {
  if (op.kind() == ReduceOp::Kind::avg && before != 1.0) {
    return comm_->premultiplied_sum(dtype, before);
  }
  return comm_->api().plain_operator(op.kind() == ReduceOp::Kind::max ? NcclApi::Sum::max
                                                                      : NcclApi::Sum::plain);
}

void NcclTransport::require_reducible(const CollectiveCall& call) const {
  LOCKSTEP_CHECK(nccl_reduces(call.dtype), "rank ", rank(), " of ", size(), ": ",
                 verb_name(call.verb), " #", log_.next_sequence(), ": NCCL cannot reduce ",
                 call.dtype, "; convert it to int32 first");
}

void NcclTransport::issue(CollectiveCall& call) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    log_.issue(call);
  }
  guarded([&] { comparison_.announce(call); });
}

/// `enqueue` gets the factors of an average and returns the tensor that takes the second one.
template <typename Enqueue>
std::shared_ptr<Operation> NcclTransport::launch(CollectiveCall call, Tensors tensors,
                                                 const Enqueue& enqueue) {
  throw_if_failed();
  retire();
  issue(call);
  std::shared_ptr<LaneMark> mark;
  guarded([&] {
    DeviceLane& lane = *parts_.lane;
    lane.follow_current();
    if (call.numel > 0) {
      const Averaging factors = call.op == ReduceOp::Kind::avg
                                    ? averaging(ReduceOp::avg().predivide(call.predivide), size())
                                    : Averaging{};
      const at::Tensor result = enqueue(factors);
      if (factors.after != 1.0) {
        lane.scale(result, factors.after);
      }
    }
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined()) {
        lane.protect(tensor);
      }
    }
    mark = lane.mark();
  });
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    log_.set_state(call.sequence, CollectiveLog::State::running);
    flights_.push_back({call, std::move(tensors), mark, Clock::now()});
  }
  return std::make_shared<FlightOperation>(shared_from_this(), call.sequence, std::move(mark));
}

template <typename Call>
void NcclTransport::call_nccl(const char* what, const Call& call) {
  comm_->call(what, call, [this] { comparison_.look(); });
}

/// What `body` throws ends this transport.
template <typename Body>
void NcclTransport::guarded(const Body& body) {
  try {
    body();
  } catch (...) {
    fail(std::current_exception());
  }
}

void NcclTransport::confirm(uint64_t sequence) {
  throw_if_failed();
  guarded([&] { comparison_.require(sequence); });
  retire();
}

void NcclTransport::retire() {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (!flights_.empty() && flights_.front().mark->passed()) {
    log_.set_state(flights_.front().call.sequence, CollectiveLog::State::complete);
    flights_.pop_front();
  }
}

void NcclTransport::throw_if_failed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_ != nullptr) {
    for (const Flight& flight : flights_) {
      log_.set_state(flight.call.sequence, CollectiveLog::State::failed);
    }
    std::rethrow_exception(failure_);
  }
}

void NcclTransport::fail(const std::exception_ptr& error) {
  end(error);
  throw_if_failed();
  std::rethrow_exception(error);
}

/// Any thread. The first failure stays.
void NcclTransport::end(const std::exception_ptr& error) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_ != nullptr) {
      return;
    }
    failure_ = error;
  }
  if (!comm_->abort()) {
    std::fprintf(stderr, "lockstep: rank %d: ncclCommAbort has not returned; end this process\n",
                 rank());
  }
  parts_.on_failure();
}

/// On the watchdog's thread. False once there is nothing left to watch.
bool NcclTransport::watch() {
  constexpr uint64_t kLogTail = 8;
  std::string why = comm_->failure();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_ != nullptr) {
      return false;
    }
    if (why.empty()) {
      why = late_flight();
    }
    if (why.empty()) {
      return true;
    }
    why = c10::str("rank ", rank(), " of ", size(), ": ", why, "\nLast calls of this rank:\n",
                   log_.render(kLogTail),
                   "Look at the output of the other ranks first; restart from the last snapshot.");
  }
  parts_.lane->enter_thread();
  end(std::make_exception_ptr(CommunicationError(why)));
  return false;
}

/// What is said of the oldest collective if it has been under way for too long.
std::string NcclTransport::late_flight() const {
  for (const Flight& flight : flights_) {
    if (flight.mark->passed()) {
      continue;
    }
    const std::chrono::duration<double> age = Clock::now() - flight.issued;
    if (age <= parts_.options.timeout) {
      return {};
    }
    return c10::str(flight.call.describe(), " timed out: not complete ", age.count(),
                    " s after its issue; a rank did not arrive, or its device is stuck");
  }
  return {};
}

}  // namespace

std::shared_ptr<Transport> make_nccl_transport(NcclParts parts) {
  if (parts.host.size() == 1) {
    return make_solo_transport(parts.lane->device());
  }
  std::shared_ptr<NcclComm> comm = meet(parts);
  return std::make_shared<NcclTransport>(std::move(parts), std::move(comm));
}

}  // namespace lockstep
