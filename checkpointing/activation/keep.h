#pragma once

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/checkpointing/activation/impl/keep_scope.h>
#include <lockstep/checkpointing/activation/impl/tensor_visitor.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

/// Marks an expensive part of a checkpointed region, such as a matrix product or attention. The
/// result of the part is kept, and recompute takes it instead of running the part again. The inputs
/// of the part are still recomputed. What autograd saves inside the part besides inputs and result
/// (weights, inner tensors) is kept too, so a part should be one operator or a few.
///
/// inputs: all tensors of the region that the function uses. The function must not change them in
/// place, and the result must not be changed in place afterwards: recompute then throws
/// lockstep::Error. In nested regions the innermost region keeps the result. Outside regions, or
/// without autograd, the function is simply called.
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
