#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/activation/tensor_visitor.h>

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::activation {

/// A module by its holder or pointer: what answers function->buffers().
template <class T, class = void>
struct IsModule : std::false_type {};
template <class T>
struct IsModule<T, std::void_t<decltype(std::declval<T&>()->buffers())>> : std::true_type {};

/// A callable that has buffers.
template <class T, class = void>
struct HasBuffers : std::false_type {};
template <class T>
struct HasBuffers<T, std::void_t<decltype(std::declval<T&>().buffers())>> : std::true_type {};

template <class Function, class... Inputs>
decltype(auto) call(Function& function, Inputs&&... inputs) {
  if constexpr (IsModule<std::remove_const_t<Function>>::value) {
    return function->forward(std::forward<Inputs>(inputs)...);
  } else {
    return function(std::forward<Inputs>(inputs)...);
  }
}

/// How recompute passes a stored argument: as forward passed it, but for arrays, stored as
/// pointers.
template <class Input>
using Passed = std::conditional_t<std::is_array_v<std::remove_reference_t<Input>>,
                                  std::decay_t<Input>, Input&&>;

/// A function with its inputs, to be called again. Inputs are deduced as forwarding references are,
/// so that recompute calls the function in the same way.
template <class Function, class... Inputs>
class StoredCall {
 public:
  using Result = decltype(call(std::declval<Function&>(), std::declval<Inputs>()...));

  template <class F>
  explicit StoredCall(F&& function, const std::decay_t<Inputs>&... inputs)
      : function_(std::forward<F>(function)), arguments_(inputs...) {}

  /// Takes the tensors out of the inputs: again() wants them, in this order.
  std::vector<at::Tensor> take_tensors() {
    std::vector<at::Tensor> tensors;
    visit_tensors(arguments_, [&](at::Tensor& tensor) {
      tensors.push_back(tensor);
      tensor.reset();
    });
    return tensors;
  }

  Result first(Inputs&&... inputs) { return call(function_, std::forward<Inputs>(inputs)...); }

  Result again(const std::vector<at::Tensor>& tensors) {
    std::tuple<std::decay_t<Inputs>...> arguments = arguments_;
    auto next = tensors.begin();
    visit_tensors(arguments, [&](at::Tensor& tensor) { tensor = *next++; });
    return std::apply(
        [this](auto&... argument) -> Result {
          return call(function_, static_cast<Passed<Inputs>>(argument)...);
        },
        arguments);
  }

  std::vector<at::Tensor> buffers() const {
    if constexpr (IsModule<Function>::value) {
      return function_->buffers();
    } else if constexpr (HasBuffers<Function>::value) {
      return function_.buffers();
    } else {
      return {};
    }
  }

 private:
  Function function_;
  std::tuple<std::decay_t<Inputs>...> arguments_;
};

}  // namespace lockstep::activation
