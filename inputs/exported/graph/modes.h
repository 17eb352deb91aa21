#pragma once

#include <ATen/core/grad_mode.h>
#include <lockstep/inputs/exported/graph/argument.h>

#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace lockstep::exported {

/// torch.autocast(): the casts of LibTorch for one type of device.
struct Autocast {
  std::optional<c10::DeviceType> device;  // empty: that of the module
  std::optional<at::ScalarType> dtype;    // empty: the device's default
  bool enabled = true;
  bool cache = true;
};

/// What a region of forward() sets while it runs.
struct Modes {
  std::optional<bool> grad;  // torch.no_grad(), torch.enable_grad()
  std::optional<Autocast> autocast;
};

/// The settings of torch.set_grad_enabled(mode), or of torch.autocast(device, dtype, enabled,
/// cache), from the inputs of their operators. `home`: the module's device at export. Throws
/// Malformed for other settings.
Modes modes_of(const nlohmann::json& settings, c10::Device home);

/// Sets the modes of a region as Python's context managers do, until the end of the scope.
class ModeGuard {
 public:
  ModeGuard(const Modes& modes, const Place& place);
  ~ModeGuard();
  ModeGuard(const ModeGuard&) = delete;
  ModeGuard& operator=(const ModeGuard&) = delete;
  ModeGuard(ModeGuard&&) = delete;
  ModeGuard& operator=(ModeGuard&&) = delete;

 private:
  struct Outer {
    c10::DeviceType device;
    bool enabled;
    at::ScalarType dtype;
    bool cache;
  };

  std::optional<at::AutoGradMode> grad_;
  std::optional<Outer> outer_;
};

}  // namespace lockstep::exported
