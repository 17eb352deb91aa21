#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <string>
#include <vector>

namespace lockstep {

/// How one checkpointed region behaves; see checkpoint().
struct CheckpointOptions {
  /// Recompute draws the same random numbers as forward did, and leaves the generators of the host
  /// and of each initialised CUDA device where it found them. Off saves a copy of their states
  /// (2.5 KB and less than a microsecond a region) where nothing is random.
  TORCH_ARG(bool, preserve_rng) = true;
  /// Recompute must save the same tensors as forward: their count, shapes, dtypes and devices.
  TORCH_ARG(bool, determinism_check) = true;
  /// Recompute ends at the last tensor that backward needs; an EarlyStop in force when forward runs
  /// overrides it. Off where what follows has effects that must happen again, such as collectives.
  TORCH_ARG(bool, early_stop) = true;
  /// Records the operators of forward and recompute, so that a mismatch names the first operator
  /// that differs. Slower: for finding a fault.
  TORCH_ARG(bool, debug) = false;
  /// What errors call the region; the type of what it runs if empty.
  TORCH_ARG(std::string, name);
  /// Tensors that the region updates in place in each forward, such as the running statistics of a
  /// batch norm that a free function calls: recompute updates copies of them. The buffers of a
  /// module that is given to checkpoint() are added by themselves.
  TORCH_ARG(std::vector<at::Tensor>, buffers);
};

}  // namespace lockstep
