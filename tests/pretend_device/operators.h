#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include "memory.h"

namespace lockstep::pretend {

/// Within an operator: what it calls is for the host, and no observer's business.
struct Inside {
  at::AutoDispatchBelowADInplaceOrView below;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  at::RecordFunctionGuard no_records{/*is_enabled=*/false};
};

/// The same elements as a tensor of the host.
at::Tensor on_host(const at::Tensor& of_device);
/// touch() of a tensor's elements, by the current stream. Nothing for tensors of the host.
void touch(const at::Tensor& tensor, Access access);

}  // namespace lockstep::pretend
