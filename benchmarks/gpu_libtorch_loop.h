#pragma once

#include <vector>

#include "models.h"

namespace lockstep::benchmarks {

/// Training steps in plain LibTorch on one device: fp32 weights under autocast, at::_fused_adamw_,
/// and for fp16 the loss scale of PyTorch's GradScaler. No step waits for the device.
class GpuLibTorchLoop {
 public:
  GpuLibTorchLoop(const Workload& workload, at::ScalarType dtype, c10::Device device);
  void step();

 private:
  at::Tensor loss() const;

  const Workload& workload_;
  at::ScalarType dtype_;
  c10::Device device_;
  std::vector<at::Tensor> parameters_, first_, second_, steps_;
  at::Tensor scale_, growth_;
};

}  // namespace lockstep::benchmarks
