#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>
#include <utility>
#include <vector>

namespace lockstep {

/// Moves the tensors of a batch to `device` without casting. A batch is a tensor, a pair, tuple or
/// vector of batches, or a struct with `data` and `target` (torch::data::Example). Copies to a CUDA
/// device go through page-locked memory: a copy from pageable memory would wait for earlier work on
/// the stream.
inline at::Tensor moved(const at::Tensor& tensor, c10::Device device) {
  const bool pins = device.is_cuda() && tensor.is_cpu() && !tensor.is_pinned();
  return (pins ? tensor.pin_memory() : tensor).to(device, /*non_blocking=*/true);
}
template <typename A, typename B>
std::pair<A, B> moved(const std::pair<A, B>& batch, c10::Device device);
template <typename... T>
std::tuple<T...> moved(const std::tuple<T...>& batch, c10::Device device);
template <typename T>
std::vector<T> moved(const std::vector<T>& batch, c10::Device device);
template <typename Example>
auto moved(Example batch, c10::Device device) -> decltype(batch.data, batch.target, batch) {
  batch.data = moved(batch.data, device);
  batch.target = moved(batch.target, device);
  return batch;
}

template <typename A, typename B>
std::pair<A, B> moved(const std::pair<A, B>& batch, c10::Device device) {
  return {moved(batch.first, device), moved(batch.second, device)};
}
template <typename... T>
std::tuple<T...> moved(const std::tuple<T...>& batch, c10::Device device) {
  return std::apply([&](const T&... part) { return std::make_tuple(moved(part, device)...); },
                    batch);
}
template <typename T>
std::vector<T> moved(const std::vector<T>& batch, c10::Device device) {
  std::vector<T> result;
  result.reserve(batch.size());
  for (const T& part : batch) {
    result.push_back(moved(part, device));
  }
  return result;
}

}  // namespace lockstep
