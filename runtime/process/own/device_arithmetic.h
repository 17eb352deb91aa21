#pragma once

#include <lockstep/runtime/runtime.h>

#include <string>

namespace lockstep::detail {

/// Sets LibTorch's process-wide switches as `options` say: deterministic() on every device; tf32()
/// and cudnn_benchmark() where `device` is a CUDA device, also when they have their defaults, which
/// are LibTorch's own. deterministic() also sets CUBLAS_WORKSPACE_CONFIG=:4096:8 there, unless it
/// is set: LibTorch refuses products by cuBLAS without it. Returns what the user has to know: a
/// variable of LibTorch's that `options` undo without naming tf32(); else empty.
std::string set_arithmetic(const RuntimeOptions& options, c10::Device device);

}  // namespace lockstep::detail
