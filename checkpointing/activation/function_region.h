#pragma once

#include <lockstep/checkpointing/activation/region.h>
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

/// The region of one call. Inputs are deduced as forwarding references are, so that recompute calls
/// the function in the same way.
template <class Function, class... Inputs>
class FunctionRegion final : public Region {
 public:
  template <class F>
  FunctionRegion(const CheckpointOptions& options, F&& function,
                 const std::decay_t<Inputs>&... inputs)
      : Region(options), function_(std::forward<F>(function)), arguments_(inputs...) {
    visit_tensors(arguments_, [this](at::Tensor& tensor) {
      save_input(tensor);
      tensor.reset();
    });
  }

  decltype(auto) run_first(Inputs&&... inputs) {
    using Result = decltype(call(function_, std::forward<Inputs>(inputs)...));
    Forward forward(*this);
    if constexpr (std::is_void_v<Result>) {
      call(function_, std::forward<Inputs>(inputs)...);
      forward.finish();
    } else {
      Result result = call(function_, std::forward<Inputs>(inputs)...);
      forward.finish();
      return static_cast<Result>(result);
    }
  }

 private:
  void run_again(const std::vector<at::Tensor>& tensors) override {
    std::tuple<std::decay_t<Inputs>...> arguments = arguments_;
    auto next = tensors.begin();
    visit_tensors(arguments, [&](at::Tensor& tensor) { tensor = *next++; });
    std::apply(
        [this](auto&... argument) {
          static_cast<void>(call(function_, static_cast<Passed<Inputs>>(argument)...));
        },
        arguments);
  }

  std::vector<at::Tensor> module_buffers() const override {
    if constexpr (IsModule<Function>::value) {
      return function_->buffers();
    } else if constexpr (HasBuffers<Function>::value) {
      return function_.buffers();
    } else {
      return {};
    }
  }

  const std::type_info& function_type() const override { return typeid(Function); }

  Function function_;
  std::tuple<std::decay_t<Inputs>...> arguments_;
};

}  // namespace lockstep::activation
