#include <ATen/Context.h>
#include <lockstep/runtime/device_arithmetic.h>

namespace lockstep {

void set_arithmetic(const RuntimeOptions& options, c10::Device device) {
  at::Context& context = at::globalContext();
  if (options.deterministic()) {
    context.setDeterministicAlgorithms(true, /*warn_only=*/false);
    context.setDeterministicCuDNN(true);
  }
  if (device.is_cuda()) {
    context.setAllowTF32CuDNN(options.tf32());
    context.setFloat32MatmulPrecision(options.tf32() ? "high" : "highest");
    context.setBenchmarkCuDNN(options.cudnn_benchmark());
  }
}

}  // namespace lockstep
