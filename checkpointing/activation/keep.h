#pragma once

#include <lockstep/checkpointing/activation/keep_scope.h>
#include <lockstep/checkpointing/activation/tensor_visitor.h>

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

/// Marks a costly part of a checkpointed region, such as a matrix product or attention: its result
/// is kept, and recompute takes the result instead of running the part again. Its inputs are still
/// recomputed; what it saves besides inputs and result (weights, inner tensors) is kept as well, so
/// let it be one operator or a few.
///
/// inputs: all tensors of the region that the function uses; it must not change them in place, nor
/// may the result be changed in place afterwards: recompute then throws lockstep::Error. In nested
/// regions the innermost keeps. Outside regions, and without autograd, the function is just called.
template <class Function, class... Inputs>
auto keep(Function&& function, Inputs&&... inputs) {
  using Result = std::decay_t<std::invoke_result_t<Function&, Inputs&...>>;
  if (!activation::KeepScope::wanted()) {
    return static_cast<Result>(std::invoke(function, inputs...));
  }
  std::tuple<std::decay_t<Inputs>...> visited(inputs...);
  std::vector<at::Tensor> tensors;
  visit_tensors(visited, [&](at::Tensor& tensor) { tensors.push_back(tensor); });
  activation::KeepScope scope(std::move(tensors));
  if (const activation::KeptCall* call = scope.recorded()) {
    auto result = std::any_cast<Result>(call->result);
    auto next = call->tensors.begin();
    visit_tensors(result, [&](at::Tensor& tensor) { tensor = scope.take(*next++); });
    return result;
  }
  Result result = std::invoke(function, inputs...);
  Result skeleton = result;
  visit_tensors(skeleton, [&](at::Tensor& tensor) {
    scope.keep(tensor);
    tensor.reset();
  });
  scope.finish(std::move(skeleton));
  return result;
}

}  // namespace lockstep
