#include <ATen/CPUGeneratorImpl.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <lockstep/runtime/process/own/host_state.h>

#include <cstdlib>
#include <mutex>

namespace lockstep::detail {
namespace {

constexpr const char* kWorkspace = "CUBLAS_WORKSPACE_CONFIG";

at::Tensor state_of(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void restore(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

const char* name_of(at::Float32MatmulPrecision precision) {
  return precision == at::Float32MatmulPrecision::HIGHEST ? "highest"
         : precision == at::Float32MatmulPrecision::HIGH  ? "high"
                                                          : "medium";
}

}  // namespace

HostState::HostState()
    : threads_(at::get_num_threads()),
      host_generator_(state_of(at::detail::getDefaultCPUGenerator())),
      deterministic_(at::globalContext().deterministicAlgorithms()),
      deterministic_warns_(at::globalContext().deterministicAlgorithmsWarnOnly()),
      deterministic_cudnn_(at::globalContext().deterministicCuDNN()),
      benchmark_cudnn_(at::globalContext().benchmarkCuDNN()),
      tf32_cudnn_(at::globalContext().allowTF32CuDNN()),
      matmul_precision_(name_of(at::globalContext().float32MatmulPrecision())) {
  if (const char* workspace = std::getenv(kWorkspace)) {
    cublas_workspace_ = workspace;
  }
  if (const auto type = at::getAccelerator()) {
    const auto& hooks = at::globalContext().getAcceleratorHooksInterface(type);
    for (c10::DeviceIndex index = 0; index < hooks.deviceCount(); ++index) {
      const c10::Device device(*type, index);
      device_generators_.emplace_back(device,
                                      state_of(at::globalContext().defaultGenerator(device)));
    }
  }
}

HostState::~HostState() {
  try {
    put_back();
  } catch (const std::exception& error) {
    TORCH_WARN("the settings of LibTorch could not be put back: ", error.what());
  }
}

void HostState::put_back() {
  at::Context& context = at::globalContext();
  at::set_num_threads(threads_);
  restore(at::detail::getDefaultCPUGenerator(), host_generator_);
  for (const auto& [device, state] : device_generators_) {
    restore(context.defaultGenerator(device), state);
  }
  context.setDeterministicAlgorithms(deterministic_, deterministic_warns_);
  context.setDeterministicCuDNN(deterministic_cudnn_);
  context.setBenchmarkCuDNN(benchmark_cudnn_);
  context.setAllowTF32CuDNN(tf32_cudnn_);
  context.setFloat32MatmulPrecision(matmul_precision_);
  if (!cublas_workspace_) {
    ::unsetenv(kWorkspace);
  }
}

}  // namespace lockstep::detail
