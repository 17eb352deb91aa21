#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

namespace lockstep::detail {

/// The inputs of a step on its device. Tensors that are there stay as they are. One of the host
/// goes through page-locked memory of its own: the program may write to it again at once.
std::vector<at::Tensor> on_device(const std::vector<at::Tensor>& inputs, c10::Device device);

}  // namespace lockstep::detail
