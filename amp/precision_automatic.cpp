#include <ATen/cpu/Utils.h>
#include <lockstep/amp/compute_speed.h>
#include <lockstep/amp/cuda_kernels.h>
#include <lockstep/amp/precision.h>
#include <lockstep/collectives/error.h>

namespace lockstep {

namespace {

bool cpu_has(const char* feature) {
  const auto capabilities = at::cpu::get_cpu_capabilities();
  const auto found = capabilities.find(feature);
  return found != capabilities.end() && found->second.isBool() && found->second.toBool();
}

Precision automatic_cpu() {
  const auto dtype = amp::fast_16_bit_dtype(
      cpu_has("amx_bf16") || cpu_has("avx512_bf16"), cpu_has("amx_fp16") || cpu_has("avx512_fp16"),
      [](c10::ScalarType type) { return amp::compute_speed(type).slowdown(); });
  return dtype ? Precision::O1(*dtype) : Precision::O0().wire(c10::kHalf);
}

/// Tensor cores compute in fp16 from capability 7.0 on, in bf16 from 8.0 on.
Precision automatic_cuda(int capability) {
  if (capability >= 80) {
    return Precision::O1(c10::kBFloat16);
  }
  return capability >= 70 ? Precision::O1(c10::kHalf) : Precision::O0().wire(c10::kHalf);
}

}  // namespace

Precision Precision::automatic(c10::Device device) {
  LOCKSTEP_CHECK(device.is_cpu() || device.is_cuda(), "Precision::automatic: device ", device.str(),
                 " is neither a CPU nor a CUDA device");
  return device.is_cpu() ? automatic_cpu() : automatic_cuda(amp::cuda_capability(device));
}

}  // namespace lockstep
