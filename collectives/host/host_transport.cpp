#include <ATen/ops/empty.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/host/host_transport.h>

#include <cstring>

namespace lockstep::detail {
namespace {

/// Up to this size one wait with copies and redundant sums is faster than two waits.
constexpr size_t kSmallBytes = NodeGroup::kSmallBytes;
/// The same for memory that needs no copies.
constexpr size_t kSmallBufferBytes = size_t{2} << 10;

CollectiveCall make_call(Verb verb, const Span& span) {
  CollectiveCall call{verb, span.dtype};
  call.numel = span.numel;
  return call;
}

CollectiveCall make_call(Verb verb, const Span& span, ReduceOp op) {
  CollectiveCall call = make_call(verb, span);
  call.op = op.kind();
  call.predivide = op.predivide_factor();
  return call;
}

}  // namespace

HostTransport::HostTransport(std::shared_ptr<NodeEngine> engine) : engine_(std::move(engine)) {}

HostTransport::~HostTransport() {
  engine_->close();
}

Span HostTransport::host_span(const at::Tensor& tensor, Verb verb) const {
  LOCKSTEP_CHECK(tensor.device().is_cpu(), "rank ", rank(), " of ", size(), ": ", verb_name(verb),
                 " #", log().next_sequence(), ": the ", name(),
                 " transport carries host tensors, found one on ", tensor.device(),
                 "; copy it with cpu() first");
  return {static_cast<char*>(tensor.data_ptr()), tensor.numel(), tensor.scalar_type()};
}

std::shared_ptr<Operation> HostTransport::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  const Span span = host_span(tensor, Verb::all_reduce);
  const kernels::Reduction reduction = kernels::make_reduction(op, size());
  CollectiveCall call = make_call(Verb::all_reduce, span, op);
  NodeGroup& group = engine_->group();
  InterNode* inter_node = engine_->inter_node();
  SharedBuffers::Place place;
  std::unique_ptr<CollectiveStep> step;
  const auto is_within = [&](size_t limit) {
    return inter_node == nullptr && span.bytes() <= limit;
  };
  if (!is_within(kSmallBufferBytes) && shared_buffers_.find(span.data, span.bytes(), place)) {
    call.buffer = place.buffer;
    call.buffer_offset = place.offset;
    step =
        make_shared_buffer_all_reduce(group, span, std::move(place.copies), reduction, inter_node);
  } else if (is_within(kSmallBytes)) {
    step = make_small_all_reduce(group, span, reduction, log().next_sequence());
  } else {
    step = make_staged_all_reduce(group, span, reduction, inter_node);
  }
  return engine_->issue(call, std::move(step), {tensor, at::Tensor()});
}

std::shared_ptr<Operation> HostTransport::reduce_scatter(const at::Tensor& output,
                                                         const at::Tensor& input, ReduceOp op) {
  const Span to = host_span(output, Verb::reduce_scatter);
  const Span from = host_span(input, Verb::reduce_scatter);
  const kernels::Reduction reduction = kernels::make_reduction(op, size());
  CollectiveCall call = make_call(Verb::reduce_scatter, from, op);
  NodeGroup& group = engine_->group();
  InterNode* inter_node = engine_->inter_node();
  SharedBuffers::Place place;
  std::unique_ptr<CollectiveStep> step;
  const bool in_place = to.data == from.at(rank() * to.numel);
  const bool by_shares = inter_node != nullptr && inter_node->scatters_cheaply(from.dtype);
  if (in_place && !by_shares && shared_buffers_.find(from.data, from.bytes(), place)) {
    call.buffer = place.buffer;
    call.buffer_offset = place.offset;
    step = inter_node == nullptr
               ? make_shared_buffer_reduce_scatter(group, from, place.copies, reduction)
               : make_shared_buffer_all_reduce(group, from, std::move(place.copies), reduction,
                                               inter_node);
  } else if (inter_node == nullptr) {
    step = make_reduce_scatter(group, to, from, reduction);
  } else {
    step = inter_node->reduce_scatter(to, from, reduction);
  }
  return engine_->issue(call, std::move(step), {output, input});
}

std::unique_ptr<CollectiveStep> HostTransport::all_gather_step(Span output, Span input) {
  return make_all_gather(engine_->group(), engine_->world().node_ranks, output, input,
                         engine_->inter_node());
}

std::shared_ptr<Operation> HostTransport::all_gather(const at::Tensor& output,
                                                     const at::Tensor& input) {
  const Span to = host_span(output, Verb::all_gather);
  const Span from = host_span(input, Verb::all_gather);
  return engine_->issue(make_call(Verb::all_gather, from), all_gather_step(to, from),
                        {output, input});
}

std::shared_ptr<Operation> HostTransport::broadcast(const at::Tensor& tensor, int root) {
  const Span span = host_span(tensor, Verb::broadcast);
  CollectiveCall call = make_call(Verb::broadcast, span);
  call.root = root;
  auto step = engine_->inter_node() == nullptr ? make_broadcast(engine_->group(), span, root)
                                               : engine_->inter_node()->broadcast(span, root);
  return engine_->issue(call, std::move(step), {tensor, at::Tensor()});
}

std::shared_ptr<Operation> HostTransport::barrier() {
  return engine_->issue({Verb::barrier}, barrier_step(), {});
}

std::unique_ptr<CollectiveStep> HostTransport::barrier_step() {
  return engine_->inter_node() == nullptr ? make_barrier() : engine_->inter_node()->barrier();
}

/// In tensors, which the call keeps: this rank may leave it before it is complete.
void HostTransport::gather(CollectiveCall call, const void* own, size_t bytes, void* all) {
  const auto length = static_cast<int64_t>(bytes);
  const at::Tensor input = at::empty({length}, at::kByte);
  const at::Tensor output = at::empty({length * size()}, at::kByte);
  std::memcpy(input.mutable_data_ptr(), own, bytes);
  const auto span_of = [](const at::Tensor& tensor) {
    return Span{static_cast<char*>(tensor.mutable_data_ptr()), tensor.numel()};
  };
  engine_->issue(call, all_gather_step(span_of(output), span_of(input)), {output, input})->wait();
  std::memcpy(all, output.const_data_ptr(), output.nbytes());
}

std::shared_ptr<Transport> HostTransport::split(int color, int key) {
  engine_->drain();
  std::vector<SplitWish> wishes(static_cast<size_t>(size()));
  const SplitWish own{color, key, rank()};
  gather({Verb::split}, &own, sizeof own, wishes.data());
  std::shared_ptr<Transport> part = split_ranks(wishes);
  ++splits_;
  if (part != nullptr && attendance() != nullptr) {
    part->attend(attendance(), c10::str(engine_->name(), '.', splits_, ':', color));
  }
  return part;
}

at::Tensor HostTransport::allocate(int64_t numel, at::ScalarType dtype) {
  engine_->drain();
  CollectiveCall call{Verb::allocate, dtype};
  call.numel = numel;
  engine_->run(call, barrier_step());
  const size_t bytes = static_cast<size_t>(numel) * c10::elementSize(dtype);
  return shared_buffers_.add(share_memory(bytes), engine_->group().rank(), numel, dtype);
}

}  // namespace lockstep::detail
