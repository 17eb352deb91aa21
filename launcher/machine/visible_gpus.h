#pragma once

#include <chrono>
#include <string>

namespace lockstep::launcher {

/// What NVIDIA's driver says of the GPUs that ranks started from here would see: with
/// CUDA_VISIBLE_DEVICES, in containers and of MIG slices as CUDA itself has it.
struct VisibleGpus {
  int count = 0;
  std::string problem;  // why there is none although there is a driver; else empty
};

/// Asks the driver in a process of its own, once: a driver may crash, or hang, and who has asked it
/// must not fork. Forks, so call it before there are threads.
const VisibleGpus& visible_gpus();
/// The same, each time, of the driver in the file `library`.
VisibleGpus ask_driver(const std::string& library, std::chrono::milliseconds deadline);

}  // namespace lockstep::launcher
