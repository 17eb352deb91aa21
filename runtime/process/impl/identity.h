#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <optional>
#include <string>

namespace lockstep::detail {

/// How many CUDA devices this process may use: 0 without a driver, or with one that is too old for
/// this LibTorch. Makes no context.
int visible_devices();

/// NVIDIA GPUs in this machine or container, also those that LibTorch or the driver cannot use or
/// CUDA_VISIBLE_DEVICES hides: the files nvidia0, nvidia3, ... in the folder `devices`. Under
/// Windows (WSL2) there is but one file for all, dxg; with a driver it counts as one GPU.
int gpus_present(const std::string& devices, bool has_driver);
int gpus_present();

/// The facts that explain why a process has no device. CUDA versions: 1000 * major + 10 * minor.
struct DriverVersions {
  bool libtorch_has_cuda = false;
  std::optional<int> driver;  // the newest that NVIDIA's driver supports; none: there is no driver
  int runtime = 0;            // LibTorch's; 0: unknown
};
/// The versions of this process. Makes no context.
DriverVersions driver_versions();
/// Why no device is visible, and what to do: a LibTorch for CPUs, no driver, one older than
/// LibTorch's CUDA, or CUDA_VISIBLE_DEVICES.
std::string why_no_device(const DriverVersions& versions);

/// "GPU-0123…" of visible device `index`: the same for all processes that see this device, or this
/// MIG slice of one, and no other. Makes no context. Throws Error (environment) where the driver
/// does not say.
std::string device_identity(int index);

}  // namespace lockstep::detail
