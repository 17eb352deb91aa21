#pragma once

#include <ATen/core/Generator.h>

#include <functional>
#include <optional>

namespace lockstep::pretend {

/// The generator of the host behind one of the device, or behind the device's default one.
at::Generator host_generator(const std::optional<at::Generator>& of_device);
/// Runs what draws from the host's default generator with the numbers of the device's.
void with_generator(const std::function<void()>& call);

}  // namespace lockstep::pretend
