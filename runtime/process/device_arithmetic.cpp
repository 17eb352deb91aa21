#include <ATen/Context.h>
#include <lockstep/runtime/process/own/device_arithmetic.h>

#include <cstdlib>

namespace lockstep::detail {

void set_arithmetic(const RuntimeOptions& options, c10::Device device) {
  at::Context& context = at::globalContext();
  if (options.deterministic()) {
    context.setDeterministicAlgorithms(true, /*warn_only=*/false);
    context.setDeterministicCuDNN(true);
  }
  if (device.is_cuda()) {
    if (options.deterministic()) {
      ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
    }
    context.setAllowTF32CuDNN(options.tf32().value_or(true));
    context.setFloat32MatmulPrecision(options.tf32().value_or(false) ? "high" : "highest");
    context.setBenchmarkCuDNN(options.cudnn_benchmark());
  }
}

}  // namespace lockstep::detail
