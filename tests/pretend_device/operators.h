#pragma once

#include <ATen/core/Tensor.h>

#include "memory.h"

namespace lockstep::pretend {

/// The same elements as a tensor of the host.
at::Tensor on_host(const at::Tensor& of_device);
/// touch() of a tensor's elements, by the current stream. Nothing for tensors of the host.
void touch(const at::Tensor& tensor, Access access);

}  // namespace lockstep::pretend
