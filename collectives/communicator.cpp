#include <lockstep/collectives/check.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/exceptions.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <lockstep/collectives/core/ragged_rows.h>
#include <lockstep/collectives/host/thread_transport.h>
#include <lockstep/collectives/impl/plain_tensor.h>
#include <lockstep/collectives/impl/transport.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace lockstep {
namespace {

/// Checks the arguments of one call and names the call in every message.
class ArgumentCheck {
 public:
  ArgumentCheck(const detail::Transport& transport, detail::Verb verb)
      : transport_(transport), verb_(verb) {}

  template <class... Parts>
  void that(bool condition, const Parts&... parts) const {
    if (!condition) {
      throw Error(c10::str("rank ", transport_.rank(), " of ", transport_.size(), ": ",
                           detail::verb_name(verb_), " #", transport_.log().next_sequence(), ": ",
                           parts...));
    }
  }

  void tensor(const at::Tensor& tensor, const char* what) const {
    that(tensor.defined(), what, " is undefined");
    const std::string why = detail::why_not_plain(tensor);
    that(why.empty(), what, " ", why);
    that(!(c10::GradMode::is_enabled() && tensor.requires_grad()), what,
         " needs a gradient, which would not pass through this collective: call lockstep::",
         detail::verb_name(verb_), "_with_gradients(), or pass its detach()");
    that(tensor.is_contiguous(), what, " of sizes ", tensor.sizes(), " and strides ",
         tensor.strides(), " must be contiguous; call contiguous() first");
  }

  void written(const at::Tensor& target, const char* what) const {
    tensor(target, what);
    that(!target._is_zerotensor(), what,
         " is LibTorch's lazy zeros, which cannot be written; pass its clone()");
  }

  void pair(const at::Tensor& output, const at::Tensor& input) const {
    written(output, "output");
    tensor(input, "input");
    that(output.scalar_type() == input.scalar_type(), "output is ", output.scalar_type(),
         " but input is ", input.scalar_type(), "; both must have one dtype");
    that(output.device() == input.device(), "output is on ", output.device(), " but input is on ",
         input.device(), "; both must be on one device");
  }

  void root(int root) const {
    that(root >= 0 && root < transport_.size(), "root is ", root, ", expected 0 to ",
         transport_.size() - 1);
  }

  void reduction(at::ScalarType dtype, ReduceOp op) const {
    const bool is_float =
        dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16;
    const bool is_integer = at::isIntegralType(dtype, /*includeBool=*/true) &&
                            at::elementSize(dtype) <= 8 && !at::isBarebonesUnsignedType(dtype);
    that(is_float || is_integer, "cannot reduce ", dtype,
         "; reducible are float32, float64, float16, bfloat16, int8 to int64, uint8 and bool");
    const bool is_extreme = op == ReduceOp::max() || op == ReduceOp::min();
    that(dtype != at::kBool || is_extreme,
         "bool tensors know max and min only; convert to an integer type to count");
    that(is_float || op.kind() != ReduceOp::Kind::avg, "avg of ", dtype,
         " would truncate; integer types know sum, max and min only");
    const double f = op.predivide_factor();
    that(op.kind() == ReduceOp::Kind::avg || f == 1.0, "predivide(", f, ") belongs to avg only");
    that(std::isfinite(f) && f > 0.0, "predivide factor must be positive and finite, found ", f);
  }

 private:
  const detail::Transport& transport_;
  detail::Verb verb_;
};

/// Memory that a collective writes in place of a lazy tensor (is_lazy()); its values then become
/// those of the tensor.
class CopiesBack : public Operation {
 public:
  CopiesBack(std::shared_ptr<Operation> operation, at::Tensor from, at::Tensor to)
      : operation_(std::move(operation)), from_(std::move(from)), to_(std::move(to)) {}
  bool test() override {
    if (!operation_->test()) {
      return false;
    }
    copy();
    return true;
  }
  void wait() override {
    operation_->wait();
    copy();
  }
  void copy() {
    if (from_.defined()) {
      const c10::InferenceMode as_it_is(to_.is_inference());
      const at::NoGradGuard no_grad;
      to_.copy_(from_);
      from_.reset();
    }
  }

 private:
  std::shared_ptr<Operation> operation_;
  at::Tensor from_, to_;
};

/// Runs `collective` on `tensor`, or on memory that takes the place of a lazy one.
template <class Collective>
Work written_to(const at::Tensor& tensor, const Collective& collective) {
  if (!detail::is_lazy(tensor)) {
    return Work(collective(tensor));
  }
  const at::Tensor memory = detail::applied(tensor.detach());
  std::shared_ptr<Operation> operation = collective(memory);
  const auto copies = std::make_shared<CopiesBack>(operation, memory, tensor);
  if (operation == nullptr) {
    copies->copy();
    return {};
  }
  return Work(copies);
}

}  // namespace

Communicator Communicator::solo() {
  return Communicator(detail::make_solo_transport());
}

std::vector<Communicator> Communicator::threads(int size, CommunicatorOptions options) {
  std::vector<Communicator> communicators;
  for (auto& transport : detail::make_thread_transports(size, options)) {
    communicators.emplace_back(std::move(transport));
  }
  return communicators;
}

Communicator::Communicator(std::shared_ptr<detail::Transport> transport)
    : transport_(std::move(transport)) {
  LOCKSTEP_CHECK(transport_ != nullptr, "Communicator: the transport is null");
}

detail::Transport& Communicator::transport() const {
  LOCKSTEP_CHECK(valid(),
                 "this Communicator is not valid: split() gave this rank none because its color "
                 "was negative; ask valid() first");
  return *transport_;
}

int Communicator::rank() const {
  return transport().rank();
}
int Communicator::size() const {
  return transport().size();
}
int Communicator::local_rank() const {
  return transport().local_rank();
}
int Communicator::local_size() const {
  return transport().local_size();
}
std::string Communicator::transport_name() const {
  return transport().name();
}
std::string Communicator::collective_log() const {
  return transport().log().render();
}

Work Communicator::all_reduce(const at::Tensor& tensor, ReduceOp op) const {
  const ArgumentCheck check(transport(), detail::Verb::all_reduce);
  check.written(tensor, "tensor");
  check.reduction(tensor.scalar_type(), op);
  return written_to(tensor,
                    [&](const at::Tensor& memory) { return transport_->all_reduce(memory, op); });
}

Work Communicator::reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                  ReduceOp op) const {
  const ArgumentCheck check(transport(), detail::Verb::reduce_scatter);
  check.pair(output, input);
  check.reduction(input.scalar_type(), op);
  check.that(input.numel() == output.numel() * size(), "input has ", input.numel(),
             " elements; output's ", output.numel(), " times ", size(), " ranks are expected");
  return written_to(output, [&](const at::Tensor& memory) {
    return transport_->reduce_scatter(memory, detail::applied(input), op);
  });
}

Work Communicator::all_gather(const at::Tensor& output, const at::Tensor& input) const {
  const ArgumentCheck check(transport(), detail::Verb::all_gather);
  check.pair(output, input);
  check.that(output.numel() == input.numel() * size(), "output has ", output.numel(),
             " elements; input's ", input.numel(), " times ", size(), " ranks are expected");
  return written_to(output, [&](const at::Tensor& memory) {
    return transport_->all_gather(memory, detail::applied(input));
  });
}

Work Communicator::broadcast(const at::Tensor& tensor, int root) const {
  const ArgumentCheck check(transport(), detail::Verb::broadcast);
  check.written(tensor, "tensor");
  check.root(root);
  return written_to(tensor,
                    [&](const at::Tensor& memory) { return transport_->broadcast(memory, root); });
}

Work Communicator::barrier() const {
  return Work(transport().barrier());
}

Communicator Communicator::split(int color, int key) const {
  Communicator result;
  result.transport_ = transport().split(color, key);
  return result;
}

at::Tensor Communicator::allocate(int64_t numel, at::ScalarType dtype) const {
  const ArgumentCheck check(transport(), detail::Verb::allocate);
  check.that(numel >= 0, "numel is ", numel, ", expected 0 or more");
  return transport_->allocate(numel, dtype);
}

void Communicator::progress() const {
  transport().progress();
}

at::Tensor Communicator::all_gather_rows(const at::Tensor& rows) const {
  const auto counts = all_gather_numbers(detail::row_count(rows));
  return detail::gather_ragged_rows(rows, counts, [this](const at::Tensor& same_count) {
    const at::Tensor all = detail::room_for_rows(same_count, same_count.size(0) * size());
    all_gather(all, same_count.contiguous()).wait();
    return all;
  });
}

std::vector<int64_t> Communicator::all_gather_numbers(int64_t number) const {
  const at::Tensor own = at::empty({1}, at::kLong);
  own.mutable_data_ptr<int64_t>()[0] = number;
  const at::Tensor all = at::empty({size()}, at::kLong);
  all_gather(all, own).wait();
  const int64_t* numbers = all.const_data_ptr<int64_t>();
  return {numbers, numbers + size()};
}

std::vector<std::string> Communicator::all_gather_bytes(const std::string& bytes) const {
  const std::vector<int64_t> lengths = all_gather_numbers(static_cast<int64_t>(bytes.size()));
  const auto ranks = static_cast<int64_t>(lengths.size());
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  if (longest == 0) {
    return std::vector<std::string>(lengths.size());
  }
  at::Tensor own = at::empty({longest}, at::kByte);
  std::memcpy(own.mutable_data_ptr(), bytes.data(), bytes.size());
  std::memset(static_cast<char*>(own.mutable_data_ptr()) + bytes.size(), 0,
              static_cast<size_t>(longest) - bytes.size());
  at::Tensor gathered = at::empty({ranks * longest}, at::kByte);
  all_gather(gathered, own).wait();

  std::vector<std::string> result;
  const char* data = static_cast<const char*>(gathered.const_data_ptr());
  for (const int64_t length : lengths) {
    result.emplace_back(data, static_cast<size_t>(length));
    data += longest;
  }
  return result;
}

std::vector<std::string> Communicator::gather_bytes(const std::string& bytes, int root) const {
  const ArgumentCheck check(transport(), detail::Verb::all_gather);
  check.root(root);
  std::vector<std::string> all = all_gather_bytes(bytes);
  return rank() == root ? all : std::vector<std::string>();
}

std::string Communicator::broadcast_bytes(const std::string& bytes, int root) const {
  const at::Tensor length = at::empty({1}, at::kLong);
  length.mutable_data_ptr<int64_t>()[0] = static_cast<int64_t>(bytes.size());
  broadcast(length, root).wait();
  std::string result(static_cast<size_t>(*length.const_data_ptr<int64_t>()), '\0');
  if (result.empty()) {
    return result;
  }
  const at::Tensor memory = at::empty({static_cast<int64_t>(result.size())}, at::kByte);
  if (rank() == root) {
    std::memcpy(memory.mutable_data_ptr(), bytes.data(), bytes.size());
  }
  broadcast(memory, root).wait();
  std::memcpy(result.data(), memory.const_data_ptr(), result.size());
  return result;
}

}  // namespace lockstep
