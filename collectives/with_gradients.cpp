#include <lockstep/collectives/check.h>
#include <lockstep/collectives/with_gradients.h>

#include <ATen/ops/ones.h>
#include <lockstep/collectives/core/ragged_rows.h>
#include <lockstep/collectives/impl/communicator_of_graph.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

using GroupPtr = detail::CommunicatorOfGraphPtr;

// Each backward calls the function itself or its counterpart, so it can be differentiated again.
// All of them sum: an average divides by the number of ranks outside of them.

struct SumOfRanks : Function<SumOfRanks> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor,
                            const GroupPtr& group) {
    detail::save_communicator(*context, group);
    at::Tensor sum = tensor.clone(at::MemoryFormat::Contiguous);
    group->communicator.all_reduce(sum).wait();
    return sum;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {SumOfRanks::apply(gradients[0], detail::saved_communicator(*context)), at::Tensor()};
  }
};

struct RowsOfRanks : Function<RowsOfRanks> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const GroupPtr& group) {
    detail::save_communicator(*context, group);
    at::Tensor all = detail::room_for_rows(rows, rows.size(0) * group->communicator.size());
    group->communicator.all_gather(all, rows.contiguous()).wait();
    return all;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients);
};

struct ShareOfSum : Function<ShareOfSum> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const GroupPtr& group) {
    detail::save_communicator(*context, group);
    at::Tensor share = detail::room_for_rows(rows, rows.size(0) / group->communicator.size());
    group->communicator.reduce_scatter(share, rows.contiguous()).wait();
    return share;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {RowsOfRanks::apply(gradients[0], detail::saved_communicator(*context)), at::Tensor()};
  }
};

variable_list RowsOfRanks::backward(AutogradContext* context, const variable_list& gradients) {
  return {ShareOfSum::apply(gradients[0], detail::saved_communicator(*context)), at::Tensor()};
}

struct OfRoot : Function<OfRoot> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor,
                            const GroupPtr& group, int64_t root) {
    detail::save_communicator(*context, group);
    context->saved_data["root"] = root;
    at::Tensor copy = tensor.clone(at::MemoryFormat::Contiguous);
    group->communicator.broadcast(copy, static_cast<int>(root)).wait();
    return copy;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const GroupPtr group = detail::saved_communicator(*context);
    const at::Tensor sum = SumOfRanks::apply(gradients[0], group);
    const bool is_root = group->communicator.rank() == context->saved_data["root"].toInt();
    // The zeros of the others belong to the graph, too: a second backward is collective as well.
    const at::Tensor none = sum.masked_fill(at::ones({}, sum.options().dtype(at::kBool)), 0.0);
    return {is_root ? sum : none, at::Tensor(), at::Tensor()};
  }
};

/// Every rank runs the same backward: while grad mode is on, the input needs a gradient.
at::Tensor in_graph(const char* function, const at::Tensor& tensor) {
  LOCKSTEP_CHECK(tensor.defined(), function, ": the tensor is undefined");
  LOCKSTEP_CHECK(tensor.is_floating_point(), function, ": the tensor is ", tensor.scalar_type(),
                 ", and only floating dtypes have gradients; use the collective of Communicator");
  const bool needs = c10::GradMode::is_enabled() && !tensor.requires_grad();
  return needs ? tensor.detach().requires_grad_(true) : tensor;
}

GroupPtr group_for(const Communicator& communicator) {
  return c10::make_intrusive<detail::CommunicatorOfGraph>(communicator);
}

/// The factor of the sum.
double factor_of(const char* function, const Communicator& communicator, ReduceOp op) {
  LOCKSTEP_CHECK(op == ReduceOp::sum() || op == ReduceOp::avg(), function,
                 ": the operation must be sum or avg, without predivide()");
  return op == ReduceOp::sum() ? 1.0 : 1.0 / communicator.size();
}

at::Tensor scaled(const at::Tensor& sum, double factor) {
  return factor == 1.0 ? sum : sum.mul(factor);
}

}  // namespace

at::Tensor all_gather_with_gradients(const Communicator& communicator, const at::Tensor& rows) {
  const at::Tensor own = in_graph("all_gather_with_gradients", rows);
  const auto group = group_for(communicator);
  return detail::gather_ragged_rows(
      own, communicator.all_gather_numbers(detail::row_count(own)),
      [&](const at::Tensor& same_count) { return RowsOfRanks::apply(same_count, group); });
}

at::Tensor reduce_scatter_with_gradients(const Communicator& communicator, const at::Tensor& rows,
                                         ReduceOp op) {
  constexpr const char* kName = "reduce_scatter_with_gradients";
  const double factor = factor_of(kName, communicator, op);
  const at::Tensor own = in_graph(kName, rows);
  LOCKSTEP_CHECK(detail::row_count(own) % communicator.size() == 0, kName, ": ", own.size(0),
                 " rows cannot be shared equally among ", communicator.size(), " ranks");
  return scaled(ShareOfSum::apply(own, group_for(communicator)), factor);
}

at::Tensor all_reduce_with_gradients(const Communicator& communicator, const at::Tensor& tensor,
                                     ReduceOp op) {
  constexpr const char* kName = "all_reduce_with_gradients";
  const double factor = factor_of(kName, communicator, op);
  return scaled(SumOfRanks::apply(in_graph(kName, tensor), group_for(communicator)), factor);
}

at::Tensor broadcast_with_gradients(const Communicator& communicator, const at::Tensor& tensor,
                                    int root) {
  return OfRoot::apply(in_graph("broadcast_with_gradients", tensor), group_for(communicator),
                       static_cast<int64_t>(root));
}

}  // namespace lockstep
