#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <type_traits>
#include <vector>

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/collectives/impl/device_watch.h>
#include <lockstep/runtime/data/impl/batch_tensors.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

namespace lockstep {

/// Stacks the samples along a new first dimension. Throws Error if shapes or dtypes differ.
at::Tensor stack_samples(const std::vector<at::Tensor>& samples);
/// One-dimensional tensors, int64 and float32.
at::Tensor stack_samples(const std::vector<int64_t>& samples);
at::Tensor stack_samples(const std::vector<float>& samples);

/// Moves the tensors of a batch to `device` without casting. A batch is a tensor, a pair, tuple or
/// vector of batches, or a struct with `data` and `target` (torch::data::Example). Copies to a CUDA
/// device go through page-locked memory: a copy from pageable memory would wait for earlier work on
/// the stream. They may return before the data is there, for work that is queued behind them on the
/// stream. Copies to the CPU return when the data is there. Tensors that are on `device` stay as
/// they are.
inline at::Tensor moved(const at::Tensor& tensor, c10::Device device) {
  const bool pins = device.is_cuda() && tensor.is_cpu() && !tensor.is_pinned();
  return (pins ? detail::released_quietly(tensor.pin_memory()) : tensor)
      .to(device, /*non_blocking=*/!device.is_cpu());
}
template <typename Batch, typename = std::enable_if_t<detail::BatchTensors<Batch>::known>>
Batch moved(const Batch& batch, c10::Device device) {
  return detail::BatchTensors<Batch>::map(
      batch, [&](const at::Tensor& tensor) { return moved(tensor, device); });
}

}  // namespace lockstep
