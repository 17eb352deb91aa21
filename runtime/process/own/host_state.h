#pragma once

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <lockstep/runtime/process/impl/kept_stop_signals.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// Saves the settings of LibTorch that a Runtime changes for the whole process: number of threads,
/// random number generators and arithmetic. The destructor restores them.
///
/// For a guest Runtime. Destroy several in reverse order of construction.
class HostState {
 public:
  [[nodiscard]] HostState();
  ~HostState();
  HostState(const HostState&) = delete;
  HostState& operator=(const HostState&) = delete;

 private:
  void put_back();

  ProcessGoesOn process_goes_on_;
  int threads_;
  at::Tensor host_generator_;
  /// The states of all devices that at::manual_seed() seeds.
  std::vector<std::pair<c10::Device, at::Tensor>> device_generators_;
  bool deterministic_;
  bool deterministic_warns_;
  bool deterministic_cudnn_;
  bool benchmark_cudnn_;
  bool tf32_cudnn_;
  std::string matmul_precision_;
  std::optional<std::string> cublas_workspace_;
};

}  // namespace lockstep::detail
