#pragma once

#include <lockstep/runtime/runtime.h>

namespace lockstep::detail {

/// Sets LibTorch's process-wide switches as `options` say: deterministic() on every device; tf32()
/// and cudnn_benchmark() where `device` is a CUDA device, also when they have their defaults, which
/// are LibTorch's own. deterministic() also sets CUBLAS_WORKSPACE_CONFIG=:4096:8 there, unless it
/// is set: LibTorch refuses products by cuBLAS without it.
void set_arithmetic(const RuntimeOptions& options, c10::Device device);

}  // namespace lockstep::detail
