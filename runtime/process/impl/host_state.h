#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <lockstep/runtime/process/impl/kept_stop_signals.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// Remembers what a Runtime changes for the whole process: LibTorch's number of threads, random
/// number generators and arithmetic. The destructor puts back what the constructor found.
///
/// For a Runtime that is a guest in a program. Of several at a time the last made ends first.
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
  /// Of every device that at::manual_seed() reaches.
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
