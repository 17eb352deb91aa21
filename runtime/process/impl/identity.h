#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/impl/cuda_driver.h>

#include <optional>
#include <string>

namespace lockstep::detail {

/// How many CUDA devices this process may use: 0 without a driver, or with one that is too old for
/// this LibTorch. Makes no context.
int visible_devices();

/// The facts that explain why a process has no device. CUDA versions: 1000 * major + 10 * minor.
struct DriverVersions {
  bool libtorch_has_cuda = false;
  std::optional<int> driver;  // the newest that NVIDIA's driver supports; none: there is no driver
  int runtime = 0;            // LibTorch's; 0: unknown
  CudaDriver answer = {};
  std::optional<std::string> list = {};  // CUDA_VISIBLE_DEVICES; none: it is not set
};
/// Those of this process. Makes no context.
DriverVersions driver_versions();

/// NVIDIA GPUs in this machine or container. A driver that works counts its own; else the files
/// nvidia0, nvidia3, ... in the folder `devices` count, as far as this process may open them.
/// Windows (WSL2) has one file for all, dxg. A driver whose error tells of a GPU counts as one.
int gpus_present(const std::string& devices, const CudaDriver& driver);
int gpus_present();

/// Whether no GPU is wanted here: a LibTorch for CPUs, or a CUDA_VISIBLE_DEVICES that is empty (or
/// begins with -1 or NoDevFiles, which says the same).
bool wants_no_device(const DriverVersions& versions);

/// Why no device is visible: a LibTorch for CPUs, no driver, an error of the driver, one that is
/// older than LibTorch's CUDA, or CUDA_VISIBLE_DEVICES.
struct NoDevice {
  std::string what;
  std::string fix;
};
NoDevice no_device(const DriverVersions& versions);
std::string why_no_device(const DriverVersions& versions);

/// Why a device of compute capability major.minor cannot run LibTorch's operators; empty: it can.
/// `flags`: nvcc's, that LibTorch was built with (-gencode;arch=compute_75,code=sm_75;...).
std::string why_no_code(int major, int minor, const std::string& flags);
/// Of visible device `index`. Makes no context.
std::string why_no_code(int index);

/// "GPU-0123…@0000:41:00.0/89ab…": UUID, PCI bus and a name of the running system. The same for all
/// processes that see this device, or this MIG slice of one, and no other. Makes no context. Throws
/// Error (environment) where the driver does not say.
std::string device_identity(int index);

}  // namespace lockstep::detail
