#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include "doctor/finding.h"

namespace lockstep::doctor {

/// A kernel of lockstep. run() makes inputs from a fixed seed, runs the kernel on `device` and
/// returns its outputs.
struct Kernel {
  std::string name;
  /// Relative. 0: equal bits. Updates need a tolerance: pow() in fp64 differs in the last bit
  /// between host and device.
  double tolerance = 0.0;
  std::function<std::vector<at::Tensor>(c10::Device device)> run;
};

/// Updates of each optimizer with moments in fp32 and bf16; on `size` elements.
std::vector<Kernel> update_kernels(int64_t size);
/// Casts between the dtypes of gradients, accumulation.
std::vector<Kernel> cast_kernels(int64_t size);
/// The other kernels of a step: norms, the decision on an update, the loss scale, averages.
std::vector<Kernel> step_kernels(int64_t size);

/// Compares each kernel on `device` with that on the host; for the CPU, the code for this machine's
/// instruction set with the generic code. Names the kernels that differ.
Finding check_kernels(const std::vector<Kernel>& kernels, c10::Device device);

/// Measured rates in GB/s.
struct Speeds {
  double copy = 0.0;    // reads and writes, within the memory of the device
  double upload = 0.0;  // from page-locked host memory; 0: there is no device
  double update = 0.0;  // AdamW: gradient, master, moments
};
Speeds measure_speeds(c10::Device device, int64_t elements);
Finding judge_speeds(const Speeds& speeds);

}  // namespace lockstep::doctor
