#include <c10/util/ScopeExit.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/device/single_device_transport.h>
#include <lockstep/collectives/impl/backoff.h>
#include <lockstep/collectives/impl/device_watch.h>
#include <lockstep/collectives/impl/graph_capture.h>
#include <lockstep/collectives/impl/transport.h>
#include <lockstep/collectives/nccl/averaging.h>
#include <lockstep/collectives/nccl/call_comparison.h>
#include <lockstep/collectives/nccl/capture_agreement.h>
#include <lockstep/collectives/nccl/in_flight_ops.h>
#include <lockstep/collectives/nccl/nccl_bootstrap.h>
#include <lockstep/collectives/nccl/nccl_comm.h>
#include <lockstep/collectives/nccl/nccl_transport.h>
#include <lockstep/collectives/nccl/registered_memory.h>

#include <optional>

namespace lockstep::detail {
namespace {

using Tensors = InFlightOps::Tensors;

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

class NcclTransport final : public SingleDeviceTransport,
                            public GraphCapture,
                            public std::enable_shared_from_this<NcclTransport> {
 public:
  NcclTransport(NcclParts parts, std::shared_ptr<NcclComm> comm)
      : SingleDeviceTransport(parts.host, parts.lane->device()),
        parts_(std::move(parts)),
        in_flight_(parts_, comm),
        comm_(std::move(comm)),
        comparison_(parts_.host, parts_.options.check),
        leave_(on_leaving([this](const std::exception_ptr& error, const std::string& /*cause*/) {
          in_flight_.end(error);
        })) {}

  const char* name() const override { return "nccl"; }
  bool rounds_at_each_rank() const override { return true; }
  std::shared_ptr<Operation> barrier() override;
  std::shared_ptr<Transport> split(int color, int key) override;
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override;
  void progress() override;
  GraphCapture* graph_capture() override { return this; }
  int64_t capture(CaptureKind kind, const CaptureWith& body) override;
  void launch(int64_t collectives, const std::function<void()>& launch) override;
  const CollectiveLog& log() const override { return in_flight_.log(); }

 private:
  class InFlightOperation;

  std::shared_ptr<Operation> all_reduce_on_device(const at::Tensor& tensor, ReduceOp op) override;
  std::shared_ptr<Operation> reduce_scatter_on_device(const at::Tensor& output,
                                                      const at::Tensor& input,
                                                      ReduceOp op) override;
  std::shared_ptr<Operation> all_gather_on_device(const at::Tensor& output,
                                                  const at::Tensor& input) override;
  std::shared_ptr<Operation> broadcast_on_device(const at::Tensor& tensor, int root) override;

  void require_host() const override;
  void refuse_during_capture(const char* what) const;
  bool rehearsing() const { return capturing_ == CaptureKind::rehearsal; }
  void capture_on_this_rank(CaptureKind kind, const CaptureWith& body);
  void look();
  int operator_for(ReduceOp op, at::ScalarType dtype, double before);
  void require_reducible(const CollectiveCall& call) const;
  void issue(CollectiveCall& call);
  template <typename Enqueue>
  std::shared_ptr<LaneMark> enqueue_on_lane(const CollectiveCall& call, const Tensors& tensors,
                                            const Enqueue& enqueue);
  template <typename Enqueue>
  std::shared_ptr<Operation> launch(CollectiveCall call, Tensors tensors, const Enqueue& enqueue);
  template <typename Call>
  void call_nccl(const char* what, const Call& call);
  void confirm(uint64_t sequence);
  uint64_t last_call() const { return log().next_sequence() - 1; }

  NcclParts parts_;
  InFlightOps in_flight_;
  std::shared_ptr<NcclComm> comm_;
  CallComparison comparison_;
  std::shared_ptr<Leave> leave_;
  std::optional<CaptureKind> capturing_;
  int64_t captured_ = 0;                       // collectives of the current capture
  std::optional<Communicator> capture_ranks_;  // the ranks on the host, for capture_agreement_
  std::optional<CaptureAgreement> capture_agreement_;
};

class NcclTransport::InFlightOperation final : public Operation {
 public:
  InFlightOperation(std::shared_ptr<NcclTransport> transport, uint64_t sequence,
                    std::shared_ptr<LaneMark> mark)
      : transport_(std::move(transport)),
        sequence_(sequence),
        mark_(std::move(mark)),
        captured_(transport_->capturing_.has_value()) {}
  bool test() override {
    LOCKSTEP_CHECK(!captured_,
                   "a captured collective cannot be tested: wait for it during the capture");
    transport_->progress();
    return mark_->passed();
  }
  void wait() override {
    if (!captured_) {
      transport_->confirm(sequence_);
    }
    mark_->hold_current();
  }

 private:
  std::shared_ptr<NcclTransport> transport_;
  uint64_t sequence_;
  std::shared_ptr<LaneMark> mark_;
  bool captured_;
};

std::shared_ptr<Operation> NcclTransport::all_reduce_on_device(const at::Tensor& tensor,
                                                               ReduceOp op) {
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

std::shared_ptr<Operation> NcclTransport::reduce_scatter_on_device(const at::Tensor& output,
                                                                   const at::Tensor& input,
                                                                   ReduceOp op) {
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

std::shared_ptr<Operation> NcclTransport::all_gather_on_device(const at::Tensor& output,
                                                               const at::Tensor& input) {
  return launch(make_call(Verb::all_gather, input), {output, input}, [&](const Averaging&) {
    call_nccl("ncclAllGather", [&](NcclApi& api, NcclApi::Handle comm) {
      return api.all_gather(input.data_ptr(), output.data_ptr(), input.nbytes(), comm,
                            parts_.lane->stream());
    });
    return at::Tensor();
  });
}

std::shared_ptr<Operation> NcclTransport::broadcast_on_device(const at::Tensor& tensor, int root) {
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
  in_flight_.throw_if_failed();
  return SingleDeviceTransport::barrier();
}

std::shared_ptr<Transport> NcclTransport::split(int color, int key) {
  in_flight_.throw_if_failed();
  refuse_during_capture("split");
  CollectiveCall call{Verb::split};
  issue(call);
  NcclParts parts = parts_;
  std::shared_ptr<NcclComm> comm;
  in_flight_.guarded([&] {
    comparison_.require(call.sequence);
    const auto on_device = parts_.lane->enter_thread();
    parts_.lane->drain();  // NCCL splits idle communicators only
    in_flight_.throw_if_failed();
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
  in_flight_.throw_if_failed();
  refuse_during_capture("allocate");
  CollectiveCall call{Verb::allocate, dtype};
  call.numel = numel;
  issue(call);
  in_flight_.guarded([&] { comparison_.require(call.sequence); });
  return registered_zeros(comm_, parts_.lane, parts_.host, numel, dtype);
}

void NcclTransport::progress() {
  in_flight_.throw_if_failed();
  in_flight_.guarded([&] {
    parts_.host.progress();
    comparison_.look();
  });
  in_flight_.retire();
}

void NcclTransport::require_host() const {
  refuse_during_capture("a barrier, or a collective of a host tensor,");
}

void NcclTransport::refuse_during_capture(const char* what) const {
  LOCKSTEP_CHECK(!capturing_.has_value(), "rank ", rank(), " of ", size(), ": ", what,
                 " cannot be captured into a CUDA graph, since the host takes part in it");
}

int64_t NcclTransport::capture(CaptureKind kind, const CaptureWith& body) {
  if (kind == CaptureKind::rehearsal) {
    capture_on_this_rank(kind, body);
    return captured_;
  }
  if (!capture_ranks_.has_value()) {
    capture_ranks_ = parts_.host.split(0, rank());
  }
  comm_->expect_graphs();
  capture_agreement_.emplace(*capture_ranks_);
  const auto end = c10::make_scope_exit([this] { capture_agreement_.reset(); });
  std::exception_ptr error;
  try {
    capture_on_this_rank(kind, body);
  } catch (...) {
    error = std::current_exception();
  }
  try {
    capture_agreement_->finish(error);
  } catch (...) {
    in_flight_.end(std::current_exception());
    throw;
  }
  in_flight_.guarded([&] { comparison_.require(last_call()); });
  return captured_;
}

void NcclTransport::capture_on_this_rank(CaptureKind kind, const CaptureWith& body) {
  Backoff backoff(/*crowded=*/true);
  progress();
  while (!in_flight_.empty()) {  // events may not be queried during a capture
    backoff.pause();
    progress();
    look();
  }
  const auto end = c10::make_scope_exit([this] { capturing_.reset(); });
  const DeviceUnwatched nobody_asks;
  capturing_ = kind;
  captured_ = 0;
  body([this] {
    if (captured_ > 0) {
      parts_.lane->mark()->hold_current();
    }
  });
}

void NcclTransport::launch(int64_t collectives, const std::function<void()>& launch) {
  progress();
  CollectiveCall call{Verb::graph_launch};
  call.numel = collectives;
  issue(call);
  std::shared_ptr<LaneMark> mark;
  in_flight_.guarded([&] {
    parts_.lane->mark()->hold_current();
    launch();
    parts_.lane->follow_current();
    mark = parts_.lane->mark();
  });
  in_flight_.start(call, {}, std::move(mark));
}

int NcclTransport::operator_for(ReduceOp op, at::ScalarType dtype, double before) {
  if (op.kind() == ReduceOp::Kind::avg && before != 1.0) {
    return comm_->premultiplied_sum(dtype, before);
  }
  return comm_->api().plain_operator(op.kind() == ReduceOp::Kind::max   ? NcclApi::Sum::max
                                     : op.kind() == ReduceOp::Kind::min ? NcclApi::Sum::min
                                                                        : NcclApi::Sum::plain);
}

void NcclTransport::require_reducible(const CollectiveCall& call) const {
  LOCKSTEP_CHECK(nccl_reduces(call.dtype), "rank ", rank(), " of ", size(), ": ",
                 verb_name(call.verb), " #", log().next_sequence(), ": NCCL cannot reduce ",
                 call.dtype, "; convert it to int32 first");
}

void NcclTransport::issue(CollectiveCall& call) {
  in_flight_.issue(call);
  in_flight_.guarded([&] { comparison_.announce(call); });
}

template <typename Enqueue>
std::shared_ptr<Operation> NcclTransport::launch(CollectiveCall call, Tensors tensors,
                                                 const Enqueue& enqueue) {
  in_flight_.throw_if_failed();
  in_flight_.retire();
  if (!rehearsing()) {
    issue(call);
  }
  std::shared_ptr<LaneMark> mark;
  const auto body = [&] { mark = enqueue_on_lane(call, tensors, enqueue); };
  if (capturing_.has_value()) {
    body();  // the end of the capture throws an exception on all ranks
  } else {
    in_flight_.guarded(body);
  }
  if (!capturing_.has_value()) {
    in_flight_.start(call, std::move(tensors), mark);
  } else if (++captured_; !rehearsing()) {
    in_flight_.note_captured(call);
  }
  return std::make_shared<InFlightOperation>(shared_from_this(), call.sequence, std::move(mark));
}

/// `enqueue` gets the factors of an average; it returns the tensor to multiply by the second one.
template <typename Enqueue>
std::shared_ptr<LaneMark> NcclTransport::enqueue_on_lane(const CollectiveCall& call,
                                                         const Tensors& tensors,
                                                         const Enqueue& enqueue) {
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
  return lane.mark();
}

template <typename Call>
void NcclTransport::call_nccl(const char* what, const Call& call) {
  if (!rehearsing()) {
    comm_->call(what, call, [this] { look(); });
  }
}

void NcclTransport::look() {
  comparison_.look();
  if (capture_agreement_.has_value()) {
    capture_agreement_->poll();
  }
}

void NcclTransport::confirm(uint64_t sequence) {
  in_flight_.throw_if_failed();
  in_flight_.guarded([&] { comparison_.require(sequence); });
  in_flight_.retire();
}

}  // namespace

std::shared_ptr<Transport> make_nccl_transport(NcclParts parts) {
  std::shared_ptr<NcclComm> comm = bootstrap_nccl(parts);
  return std::make_shared<NcclTransport>(std::move(parts), std::move(comm));
}

}  // namespace lockstep::detail
