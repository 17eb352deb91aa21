#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/checkpointing/activation/impl/execution_state.h>

namespace lockstep::activation {

namespace {

std::optional<c10::Stream> current_stream() {
  if (!at::globalContext().hasCUDA()) {
    return std::nullopt;
  }
  const c10::impl::VirtualGuardImpl devices(c10::DeviceType::CUDA);
  if (devices.deviceCount() == 0) {
    return std::nullopt;
  }
  const c10::Device device = devices.getDevice();
  const auto& hooks = at::globalContext().getAcceleratorHooksInterface(at::kCUDA);
  if (!hooks.hasPrimaryContext(device.index())) {
    return std::nullopt;
  }
  return devices.getStream(device);
}

// Makes `to` current; its later work starts after all work that is queued on `from`.
void switch_stream(const std::optional<c10::Stream>& from, const std::optional<c10::Stream>& to) {
  if (!to || from == to) {
    return;
  }
  const c10::impl::VirtualGuardImpl devices(to->device_type());
  if (from) {
    c10::Event reached(from->device_type());
    reached.record(*from);
    reached.block(*to);
  }
  devices.setDevice(to->device());
  devices.exchangeStream(*to);
}

}  // namespace

ExecutionState ExecutionState::current() {
  ExecutionState state;
  state.autocast_.reserve(at::autocast::_AUTOCAST_SUPPORTED_DEVICES.size());
  for (const c10::DeviceType device : at::autocast::_AUTOCAST_SUPPORTED_DEVICES) {
    const auto key = at::autocast::get_autocast_dispatch_key_from_device_type(device);
    state.autocast_.push_back({device, at::autocast::is_autocast_enabled(device),
                               c10::impl::tls_is_dispatch_key_included(key),
                               at::autocast::get_autocast_dtype(device)});
  }
  state.default_dtype_ = c10::get_default_dtype();
  state.stream_ = current_stream();
  return state;
}

bool ExecutionState::operator==(const ExecutionState& other) const {
  return autocast_ == other.autocast_ && default_dtype_ == other.default_dtype_ &&
         stream_ == other.stream_;
}

ExecutionGuard::ExecutionGuard(const ExecutionState& state)
    : outer_(ExecutionState::current()),
      outer_grad_mode_(c10::GradMode::is_enabled()),
      outer_cache_enabled_(at::autocast::is_autocast_cache_enabled()) {
  enter(state);
  c10::GradMode::set_enabled(true);
  at::autocast::set_autocast_cache_enabled(false);
  at::autocast::increment_nesting();
  switch_stream(outer_.stream_, state.stream_);
}

ExecutionGuard::~ExecutionGuard() {
  try {
    switch_stream(current_stream(), outer_.stream_);
  } catch (const c10::Error&) {
    // the device has failed; the work under this guard throws that
  }
  at::autocast::decrement_nesting();
  at::autocast::set_autocast_cache_enabled(outer_cache_enabled_);
  c10::GradMode::set_enabled(outer_grad_mode_);
  enter(outer_);
}

void ExecutionGuard::enter(const ExecutionState& state) {
  for (const auto& [device, enabled, included, dtype] : state.autocast_) {
    const auto key = at::autocast::get_autocast_dispatch_key_from_device_type(device);
    c10::impl::tls_set_dispatch_key_included(key, included);
    at::autocast::set_autocast_enabled(device, enabled);
    at::autocast::set_autocast_dtype(device, dtype);
  }
  if (state.default_dtype_ != c10::get_default_dtype()) {
    c10::set_default_dtype(state.default_dtype_);
  }
}

}  // namespace lockstep::activation
