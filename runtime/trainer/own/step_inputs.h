#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

namespace lockstep::detail {

/// Copies the inputs of a step to its device, except tensors that are there. The program may write
/// to a host tensor again at once: its values are in page-locked memory of lockstep.
std::vector<at::Tensor> on_device(const std::vector<at::Tensor>& inputs, c10::Device device);

}  // namespace lockstep::detail
