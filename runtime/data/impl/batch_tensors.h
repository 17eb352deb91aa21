#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// The tensors of a batch. map(batch, function) returns the batch with function(tensor) in place of
/// each tensor; parts of other types stay as they are. `known`: the batch consists of tensors.
template <typename Batch, typename = void>
struct BatchTensors {
  static constexpr bool known = false;
  template <typename Function>
  static Batch map(Batch batch, const Function& /*function*/) {
    return batch;
  }
};

template <>
struct BatchTensors<at::Tensor> {
  static constexpr bool known = true;
  template <typename Function>
  static at::Tensor map(const at::Tensor& tensor, const Function& function) {
    return function(tensor);
  }
};

template <typename A, typename B>
struct BatchTensors<std::pair<A, B>> {
  static constexpr bool known = BatchTensors<A>::known && BatchTensors<B>::known;
  template <typename Function>
  static std::pair<A, B> map(std::pair<A, B> batch, const Function& function) {
    return {BatchTensors<A>::map(std::move(batch.first), function),
            BatchTensors<B>::map(std::move(batch.second), function)};
  }
};

template <typename... T>
struct BatchTensors<std::tuple<T...>> {
  static constexpr bool known = (BatchTensors<T>::known && ...);
  template <typename Function>
  static std::tuple<T...> map(std::tuple<T...> batch, const Function& function) {
    return std::apply(
        [&](T&... part) {
          return std::tuple<T...>(BatchTensors<T>::map(std::move(part), function)...);
        },
        batch);
  }
};

template <typename T>
struct BatchTensors<std::vector<T>> {
  static constexpr bool known = BatchTensors<T>::known;
  template <typename Function>
  static std::vector<T> map(std::vector<T> batch, const Function& function) {
    if constexpr (!std::is_arithmetic_v<T>) {
      for (T& part : batch) {
        part = BatchTensors<T>::map(std::move(part), function);
      }
    }
    return batch;
  }
};

/// A struct with `data` and `target`, as torch::data::Example.
template <typename Example>
struct BatchTensors<Example, std::void_t<decltype(std::declval<Example&>().data),
                                         decltype(std::declval<Example&>().target)>> {
  using Data = decltype(std::declval<Example>().data);
  using Target = decltype(std::declval<Example>().target);
  static constexpr bool known = BatchTensors<Data>::known && BatchTensors<Target>::known;
  template <typename Function>
  static Example map(Example batch, const Function& function) {
    batch.data = BatchTensors<Data>::map(std::move(batch.data), function);
    batch.target = BatchTensors<Target>::map(std::move(batch.target), function);
    return batch;
  }
};

}  // namespace lockstep::detail
