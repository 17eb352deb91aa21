#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <optional>
#include <string>

namespace lockstep::detail {

/// What NVIDIA's driver says of itself and of the GPUs that this process may use. Counts as CUDA
/// does: CUDA_VISIBLE_DEVICES, containers, MIG slices, WSL2.
struct CudaDriver {
  bool found = false;
  int version = 0;  // the newest CUDA that it supports: 1000 * major + 10 * minor; 0: unknown
  int error = 0;    // of cuInit or cuDeviceGetCount; -1: the file is not NVIDIA's driver
  int devices = 0;
  std::string problem;  // "NVIDIA's driver reports error 802: system not yet initialized"
};
/// Plain C++: needs no toolkit, makes no context.
CudaDriver ask_cuda_driver(const std::string& library = "libcuda.so.1");
/// What to do about an error of the driver.
std::string advice_for_driver(int error);

struct CudaDevice {
  std::string uuid;  // "GPU-0123…": the same for all processes that see this device or MIG slice
  std::string bus;   // PCI, "0000:41:00.0": one for all slices of a GPU
  int major = 0;     // compute capability
  int minor = 0;
};
/// Visible device `index`. None where the driver does not say. Makes no context.
std::optional<CudaDevice> cuda_device(int index, const std::string& library = "libcuda.so.1");

}  // namespace lockstep::detail
