#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <string>
#include <vector>

namespace lockstep {

/// Options of one checkpointed region; see checkpoint().
struct CheckpointOptions {
  /// Recompute draws the same random numbers as forward, and then restores the random generators of
  /// the host and of each initialised CUDA device. If nothing in the region is random, switch this
  /// off: it avoids a copy of the generator states (2.5 KB and less than a microsecond per region).
  TORCH_ARG(bool, preserve_rng) = true;
  /// Checks that recompute saves the same tensors as forward: their number, shapes, dtypes and
  /// devices.
  TORCH_ARG(bool, determinism_check) = true;
  /// Recompute stops at the last tensor that backward needs. An EarlyStop object that is alive when
  /// forward runs overrides this option. Switch the option off if later operators of the region
  /// have effects that must be repeated, such as collectives.
  TORCH_ARG(bool, early_stop) = true;
  /// Records the operators of forward and recompute, so that the error of a mismatch names the
  /// first operator that differs. Slow: for debugging only.
  TORCH_ARG(bool, debug) = false;
  /// Name of the region in error messages. Empty: the type of the function.
  TORCH_ARG(std::string, name);
  /// Tensors that the region updates in place in each forward, such as the running statistics of a
  /// batch norm inside a free function. Recompute updates copies of them. The buffers of a module
  /// that is passed to checkpoint() need not be listed.
  TORCH_ARG(std::vector<at::Tensor>, buffers);
};

}  // namespace lockstep
