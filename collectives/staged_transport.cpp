#include <lockstep/collectives/staged_transport.h>

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/device_transport.h>
#include <lockstep/collectives/solo_transport.h>
#include <lockstep/collectives/staged_step.h>

#include <algorithm>
#include <deque>

namespace lockstep {
namespace {

/// Elements [begin, begin + numel) of a dense tensor, as a vector in the tensor's own storage: the
/// allocator knows whose memory is in use by that. Host memory is a vector, too.
at::Tensor part_of(const at::Tensor& tensor, int64_t begin, int64_t numel) {
  at::Tensor part = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(tensor.storage()), tensor.key_set(), tensor.dtype());
  c10::TensorImpl& impl = *part.unsafeGetTensorImpl();
  impl.set_storage_offset(tensor.storage_offset() + begin);
  impl.set_sizes_contiguous({numel});
  return part;
}

at::Tensor whole(const at::Tensor& tensor) {
  return part_of(tensor, 0, tensor.numel());
}

class StagedTransport final : public DeviceTransport,
                              public std::enable_shared_from_this<StagedTransport> {
 public:
  explicit StagedTransport(StagedParts parts)
      : DeviceTransport(parts.host, parts.down->device()),
        parts_(std::move(parts)),
        pipeline_(parts_.down, parts_.up, parts_.host.split(0, parts_.host.rank()),
                  parts_.timeout) {}
  ~StagedTransport() override;

  const char* name() const override { return "staged"; }
  std::shared_ptr<Transport> split(int color, int key) override;
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override;
  void progress() override;
  const CollectiveLog& log() const override { return log_; }

 private:
  class StagedOperation;
  struct Issued {
    uint64_t sequence;
    uint64_t last_step;
  };

  std::shared_ptr<Operation> all_reduce_on_device(const at::Tensor& tensor, ReduceOp op) override;
  std::shared_ptr<Operation> reduce_scatter_on_device(const at::Tensor& output,
                                                      const at::Tensor& input,
                                                      ReduceOp op) override;
  std::shared_ptr<Operation> all_gather_on_device(const at::Tensor& output,
                                                  const at::Tensor& input) override;
  std::shared_ptr<Operation> broadcast_on_device(const at::Tensor& tensor, int root) override;

  at::Tensor host_copy(const at::Tensor& tensor) const {
    return parts_.down->host_memory(tensor.numel(), tensor.scalar_type());
  }
  CollectiveCall record(Verb verb, const at::Tensor& tensor, ReduceOp op = ReduceOp::sum());
  std::shared_ptr<Operation> operation(const CollectiveCall& call, uint64_t last_step);

  StagedParts parts_;
  StagedPipeline pipeline_;
  CollectiveLog log_;
  std::deque<Issued> issued_;
};

class StagedTransport::StagedOperation final : public Operation {
 public:
  StagedOperation(std::shared_ptr<StagedTransport> transport, uint64_t last_step)
      : transport_(std::move(transport)), last_step_(last_step) {}
  bool test() override {
    transport_->progress();
    return transport_->pipeline_.finished() >= last_step_;
  }
  void wait() override {
    if (const auto mark = transport_->pipeline_.wait_for(last_step_)) {
      mark->hold_current();
    }
  }

 private:
  std::shared_ptr<StagedTransport> transport_;
  uint64_t last_step_;
};

StagedTransport::~StagedTransport() {
  if (std::uncaught_exceptions() == 0 && !issued_.empty()) {
    try {
      pipeline_.wait_for(issued_.back().last_step);
    } catch (const std::exception&) {
      // whoever waits for the collective has been told
    }
  }
}

CollectiveCall StagedTransport::record(Verb verb, const at::Tensor& tensor, ReduceOp op) {
  CollectiveCall call{verb, tensor.scalar_type()};
  call.numel = tensor.numel();
  call.op = op.kind();
  log_.issue(call);
  return call;
}

std::shared_ptr<Operation> StagedTransport::operation(const CollectiveCall& call,
                                                      uint64_t last_step) {
  issued_.push_back({call.sequence, last_step});
  log_.set_state(call.sequence, CollectiveLog::State::running);
  return std::make_shared<StagedOperation>(shared_from_this(), last_step);
}

std::shared_ptr<Operation> StagedTransport::all_reduce_on_device(const at::Tensor& tensor,
                                                                 ReduceOp op) {
  const CollectiveCall call = record(Verb::all_reduce, tensor, op);
  const int64_t chunk = std::max<int64_t>(1, parts_.chunk_bytes / tensor.element_size());
  uint64_t last = 0;
  for (int64_t begin = 0; begin == 0 || begin < tensor.numel(); begin += chunk) {
    const at::Tensor device = part_of(tensor, begin, std::min(chunk, tensor.numel() - begin));
    const at::Tensor host = host_copy(device);
    last = pipeline_.add({{{host, device}},
                          [host, op](Communicator& ranks) { return ranks.all_reduce(host, op); },
                          {{host, device}}});
  }
  return operation(call, last);
}

std::shared_ptr<Operation> StagedTransport::reduce_scatter_on_device(const at::Tensor& output,
                                                                     const at::Tensor& input,
                                                                     ReduceOp op) {
  const CollectiveCall call = record(Verb::reduce_scatter, input, op);
  const at::Tensor from = host_copy(input);
  const at::Tensor to = host_copy(output);
  return operation(call, pipeline_.add({{{from, whole(input)}},
                                        [from, to, op](Communicator& ranks) {
                                          return ranks.reduce_scatter(to, from, op);
                                        },
                                        {{to, whole(output)}}}));
}

std::shared_ptr<Operation> StagedTransport::all_gather_on_device(const at::Tensor& output,
                                                                 const at::Tensor& input) {
  const CollectiveCall call = record(Verb::all_gather, input);
  const at::Tensor from = host_copy(input);
  const at::Tensor to = host_copy(output);
  return operation(
      call, pipeline_.add({{{from, whole(input)}},
                           [from, to](Communicator& ranks) { return ranks.all_gather(to, from); },
                           {{to, whole(output)}}}));
}

std::shared_ptr<Operation> StagedTransport::broadcast_on_device(const at::Tensor& tensor,
                                                                int root) {
  const CollectiveCall call = record(Verb::broadcast, tensor);
  const at::Tensor host = host_copy(tensor);
  return operation(
      call,
      pipeline_.add({{{host, whole(tensor)}},
                     [host, root](Communicator& ranks) { return ranks.broadcast(host, root); },
                     {{host, whole(tensor)}}}));
}

std::shared_ptr<Transport> StagedTransport::split(int color, int key) {
  if (!issued_.empty()) {
    pipeline_.wait_for(issued_.back().last_step);
  }
  CollectiveCall call{Verb::split};
  log_.issue(call);
  StagedParts parts = parts_;
  parts.host = parts_.host.split(color, key);
  log_.set_state(call.sequence, CollectiveLog::State::complete);
  return color < 0 ? nullptr : make_staged_transport(std::move(parts));
}

at::Tensor StagedTransport::allocate(int64_t numel, at::ScalarType dtype) {
  CollectiveCall call{Verb::allocate, dtype};
  call.numel = numel;
  log_.issue(call);
  at::Tensor memory;
  std::string problem;
  try {
    memory = parts_.up->zeros(numel, dtype);
  } catch (const c10::OutOfMemoryError& error) {
    problem = error.what_without_backtrace();
  }
  const std::vector<std::string> problems = parts_.host.all_gather_bytes(problem);
  for (size_t k = 0; k < problems.size(); ++k) {
    LOCKSTEP_CHECK_CODE(problems[k].empty(), ExitCode::out_of_memory, "rank ", k, " of ",
                        problems.size(), " has no device memory for a bucket of ", numel, " ",
                        dtype, ": ", problems[k]);
  }
  log_.set_state(call.sequence, CollectiveLog::State::complete);
  return memory;
}

void StagedTransport::progress() {
  parts_.host.progress();
  pipeline_.advance();
  while (!issued_.empty() && issued_.front().last_step <= pipeline_.finished()) {
    log_.set_state(issued_.front().sequence, CollectiveLog::State::complete);
    issued_.pop_front();
  }
}

}  // namespace

std::shared_ptr<Transport> make_staged_transport(StagedParts parts) {
  if (parts.host.size() == 1) {
    return make_solo_transport(parts.up->device());
  }
  return std::make_shared<StagedTransport>(std::move(parts));
}

}  // namespace lockstep
