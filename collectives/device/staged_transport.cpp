#include <lockstep/collectives/device/staged_transport.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/outcome.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <lockstep/collectives/device/single_device_transport.h>
#include <lockstep/collectives/device/staged_step.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/as_error.h>
#include <lockstep/collectives/impl/closure_calls.h>
#include <lockstep/collectives/impl/transport.h>

#include <algorithm>
#include <deque>

namespace lockstep::detail {
namespace {

/// Elements [begin, begin + numel) of a dense tensor, as a vector in the tensor's own storage, so
/// that the allocator knows which memory is in use.
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

class StagedTransport final : public SingleDeviceTransport,
                              public std::enable_shared_from_this<StagedTransport> {
 public:
  explicit StagedTransport(StagedParts parts)
      : SingleDeviceTransport(parts.host, parts.down->device()),
        parts_(std::move(parts)),
        ranks_(parts_.host.split(0, parts_.host.rank())),
        pipeline_(parts_.down, parts_.up, ranks_, parts_.timeout) {}
  ~StagedTransport() override;

  const char* name() const override { return "staged"; }
  std::shared_ptr<Transport> split(int color, int key) override;
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override;
  void progress() override;
  const CollectiveLog& log() const override { return log_; }
  std::string attended_name() const override {
    const auto calls = closure_calls(ranks_);
    return calls ? calls->name() : "";
  }

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

  /// Page-locked; where there is no more of it, memory that the device reads through a copy. So a
  /// rank without it needs no agreement with the others, which would have to wait for this call.
  at::Tensor host_memory(int64_t numel, at::ScalarType dtype) const {
    try {
      return parts_.down->host_memory(numel, dtype);
    } catch (const std::exception&) {
      return at::empty({numel}, dtype);
    }
  }
  at::Tensor host_copy(const at::Tensor& tensor) const {
    return parts_.down->host_memory(tensor.numel(), tensor.scalar_type());
  }
  std::vector<at::Tensor> chunks_of(const at::Tensor& tensor) const;
  /// A chunk of a tensor with a share for each rank.
  struct Piece {
    int64_t begin = 0;                  // of the chunk in each share
    at::Tensor host;                    // the chunk of all shares
    std::vector<StagedStep::Copy> all;  // its place on the host and on the device, for each share
    StagedStep::Copy own;
  };
  std::vector<Piece> pieces_of(int64_t share, const at::Tensor& all) const;
  template <typename Body>
  void get_memory(const char* what, int64_t numel, at::ScalarType dtype, const Body& body);
  CollectiveCall record(Verb verb, const at::Tensor& tensor, ReduceOp op = ReduceOp::sum());
  std::shared_ptr<Operation> operation(const CollectiveCall& call, uint64_t last_step);

  StagedParts parts_;
  Communicator ranks_;  // of pipeline_
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
      // wait() of the collective has thrown it
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
  uint64_t last = 0;
  for (const at::Tensor& device : chunks_of(tensor)) {
    const at::Tensor host = host_memory(device.numel(), device.scalar_type());
    last = pipeline_.add({{{host, device}},
                          [host, op](Communicator& ranks) { return ranks.all_reduce(host, op); },
                          {{host, device}}});
  }
  return operation(call, last);
}

std::vector<at::Tensor> StagedTransport::chunks_of(const at::Tensor& tensor) const {
  const int64_t chunk = std::max<int64_t>(1, parts_.chunk_bytes / tensor.element_size());
  std::vector<at::Tensor> chunks;
  for (int64_t begin = 0; begin == 0 || begin < tensor.numel(); begin += chunk) {
    chunks.push_back(part_of(tensor, begin, std::min(chunk, tensor.numel() - begin)));
  }
  return chunks;
}

/// Runs `body`, which allocates memory for `what`; if it fails on one rank, every rank throws. The
/// ranks' flag is a step of the pipeline, so all earlier steps are complete then, and a rank that
/// makes another call is detected.
template <typename Body>
void StagedTransport::get_memory(const char* what, int64_t numel, at::ScalarType dtype,
                                 const Body& body) {
  const Agreement agreement(parts_.host);
  const Outcome mine = agreement.outcome_of([&] {
    try {
      body();
    } catch (...) {
      const Error error = as_error(std::current_exception());
      throw Error(c10::str("no memory for ", what, " of ", numel, " ", dtype, ": ", error.what()),
                  error.code());
    }
    return "";
  });
  const at::Tensor failed = at::full({1}, mine.error.has_value() ? 1 : 0, at::kInt);
  pipeline_.wait_for(
      pipeline_.add({{}, [failed](Communicator& ranks) { return ranks.all_reduce(failed); }, {}}));
  if (*failed.const_data_ptr<int32_t>() != 0) {
    agreement.raise(mine.error);
  }
}

/// Of each chunk the host has the same elements of all ranks' shares, one rank after the other;
/// the result is in this rank's.
std::shared_ptr<Operation> StagedTransport::reduce_scatter_on_device(const at::Tensor& output,
                                                                     const at::Tensor& input,
                                                                     ReduceOp op) {
  const CollectiveCall call = record(Verb::reduce_scatter, input, op);
  uint64_t last = 0;
  for (const Piece& piece : pieces_of(output.numel(), input)) {
    last =
        pipeline_.add({piece.all,
                       [own = piece.own.host, all = piece.host, op](Communicator& ranks) {
                         return ranks.reduce_scatter(own, all, op);
                       },
                       {{piece.own.host, part_of(output, piece.begin, piece.own.host.numel())}}});
  }
  return operation(call, last);
}

std::shared_ptr<Operation> StagedTransport::all_gather_on_device(const at::Tensor& output,
                                                                 const at::Tensor& input) {
  const CollectiveCall call = record(Verb::all_gather, input);
  uint64_t last = 0;
  for (const Piece& piece : pieces_of(input.numel(), output)) {
    last = pipeline_.add({{{piece.own.host, part_of(input, piece.begin, piece.own.host.numel())}},
                          [own = piece.own.host, all = piece.host](Communicator& ranks) {
                            return ranks.all_gather(all, own);
                          },
                          piece.all});
  }
  return operation(call, last);
}

/// `share`: elements of each rank in `all`.
std::vector<StagedTransport::Piece> StagedTransport::pieces_of(int64_t share,
                                                               const at::Tensor& all) const {
  const int64_t most =
      std::max<int64_t>(1, parts_.chunk_bytes / all.element_size() / ranks_.size());
  std::vector<Piece> pieces;
  for (int64_t begin = 0; begin == 0 || begin < share; begin += most) {
    const int64_t numel = std::min(most, share - begin);
    Piece piece;
    piece.begin = begin;
    piece.host = host_memory(ranks_.size() * numel, all.scalar_type());
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      piece.all.push_back(
          {piece.host.narrow(0, rank * numel, numel), part_of(all, rank * share + begin, numel)});
    }
    piece.own = piece.all[static_cast<size_t>(ranks_.rank())];
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::shared_ptr<Operation> StagedTransport::broadcast_on_device(const at::Tensor& tensor,
                                                                int root) {
  at::Tensor host;
  get_memory("a broadcast", tensor.numel(), tensor.scalar_type(),
             [&] { host = host_copy(tensor); });
  const CollectiveCall call = record(Verb::broadcast, tensor);
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
  get_memory("a bucket", numel, dtype, [&] {
    memory = parts_.up->zeros(numel, dtype);
    std::vector<at::Tensor> copies;  // fills the cache of page-locked memory
    for (const at::Tensor& chunk : chunks_of(memory)) {
      copies.push_back(host_copy(chunk));
    }
  });
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

}  // namespace lockstep::detail
