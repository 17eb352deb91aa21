#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/activation/impl/tensor_visitor.h>

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::activation {

/// True for a module, by its holder or pointer: a type on which function->buffers() compiles.
template <class T, class = void>
struct IsModule : std::false_type {};
template <class T>
struct IsModule<T, std::void_t<decltype(std::declval<T&>()->buffers())>> : std::true_type {};

/// True for a callable with a member function buffers().
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

/// The type in which recompute passes a stored argument: the same as in forward, except for arrays,
/// which are stored as pointers.
template <class Input>
using Passed = std::conditional_t<std::is_array_v<std::remove_reference_t<Input>>,
                                  std::decay_t<Input>, Input&&>;

/// A function with its inputs, stored so that recompute can call it again. Inputs are deduced like
/// forwarding references, so that recompute calls the function in the same way as forward.
template <class Function, class... Inputs>
class StoredCall {
 public:
  using Result = decltype(call(std::declval<Function&>(), std::declval<Inputs>()...));

  template <class F>
  explicit StoredCall(F&& function, const std::decay_t<Inputs>&... inputs)
      : function_(std::forward<F>(function)), arguments_(inputs...) {}

  /// Removes the tensors from the stored inputs and returns them. again() expects them in this
  /// order.
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
