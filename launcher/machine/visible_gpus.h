#pragma once

#include <chrono>
#include <string>

namespace lockstep::launcher {

/// The GPUs that ranks on this host would see, by NVIDIA's driver. Counts as CUDA does:
/// CUDA_VISIBLE_DEVICES, containers, MIG slices.
struct VisibleGpus {
  int count = 0;
  std::string problem;  // why there is no GPU although there is a driver; else empty
  int error = 0;        // the driver's, for detail::advice_for_driver()
};

/// Asks the driver once, in a child process: a driver may crash or hang, and a process that has
/// called it must not fork. Call it before there are threads, since it forks.
const VisibleGpus& visible_gpus();
/// Asks the driver in the file `library`, at each call.
VisibleGpus ask_driver(const std::string& library, std::chrono::milliseconds deadline);

}  // namespace lockstep::launcher
