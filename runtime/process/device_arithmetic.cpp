#include <ATen/Context.h>
#include <lockstep/runtime/process/own/device_arithmetic.h>

#include <cstdlib>
#include <string>

namespace lockstep::detail {

std::string set_arithmetic(const RuntimeOptions& options, c10::Device device) {
  std::string notice;
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
    const char* override = std::getenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE");
    if (override != nullptr && std::string(override) == "1" && !options.tf32().has_value()) {
      notice =
          "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1, which images of NGC set, is not followed: matrix "
          "products of fp32 are in fp32; RuntimeOptions().tf32(true) chooses TF32, tf32(false) "
          "ends this line";
    }
  }
  return notice;
}

}  // namespace lockstep::detail
