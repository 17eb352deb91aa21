#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/ivalue.h>
#include <lockstep/runtime/metrics.h>
#include <torch/csrc/jit/api/module.h>

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::detail {

template <typename>
constexpr bool kNever = false;

template <typename Value>
at::Tensor tensor_or_none(const Value& value) {
  if constexpr (std::is_convertible_v<const Value&, at::Tensor>) {
    return value;
  } else {
    return {};
  }
}

/// The parts of a batch: the data for the model, and the target, undefined if it is no tensor.
template <typename Batch, typename = void>
struct BatchParts {
  static constexpr bool known = false;
  static at::Tensor target(const Batch&) { return {}; }
};
template <>
struct BatchParts<at::Tensor> {
  static constexpr bool known = true;
  static const at::Tensor& data(const at::Tensor& batch) { return batch; }
  static at::Tensor target(const at::Tensor&) { return {}; }
};
template <typename Data, typename Target>
struct BatchParts<std::pair<Data, Target>> {
  static constexpr bool known = true;
  static const Data& data(const std::pair<Data, Target>& batch) { return batch.first; }
  static at::Tensor target(const std::pair<Data, Target>& batch) {
    return tensor_or_none(batch.second);
  }
};
template <typename Data, typename Target>
struct BatchParts<std::tuple<Data, Target>> {
  static constexpr bool known = true;
  static const Data& data(const std::tuple<Data, Target>& batch) { return std::get<0>(batch); }
  static at::Tensor target(const std::tuple<Data, Target>& batch) {
    return tensor_or_none(std::get<1>(batch));
  }
};
template <typename Batch>
struct BatchParts<Batch, std::void_t<decltype(&Batch::data), decltype(&Batch::target)>> {
  static constexpr bool known = true;
  static const auto& data(const Batch& batch) { return batch.data; }
  static at::Tensor target(const Batch& batch) { return tensor_or_none(batch.target); }
};

template <typename Network, typename = void>
struct IsPointer : std::false_type {};
template <typename Network>
struct IsPointer<Network, std::void_t<decltype(std::declval<Network&>().operator->())>>
    : std::true_type {};

template <typename Network, typename Data>
auto call_network(Network& network, const Data& data) {
  // A copy refers to the same module, and is not const.
  if constexpr (std::is_base_of_v<torch::jit::Module, Network>) {
    std::remove_const_t<Network> handle = network;
    return handle.forward(std::vector<c10::IValue>{data}).toTensor();
  } else if constexpr (IsPointer<Network>::value) {
    std::remove_const_t<Network> handle = network;
    return handle->forward(data);
  } else {
    return network.forward(data);
  }
}

template <typename Result, typename Batch>
Prediction prediction_of(Result&& result, const Batch& batch) {
  if constexpr (std::is_same_v<std::decay_t<Result>, Prediction>) {
    return std::forward<Result>(result);
  } else if constexpr (std::is_convertible_v<Result&&, at::Tensor>) {
    return {std::forward<Result>(result), BatchParts<Batch>::target(batch)};
  } else {
    static_assert(kNever<Result>,
                  "evaluate(): the model returns no tensor; pass a function of the batch that "
                  "returns a lockstep::Prediction or a tensor");
  }
}

}  // namespace lockstep::detail
