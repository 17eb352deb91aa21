#pragma once

#include <torch/arg.h>

#include <cstdint>

namespace lockstep {

struct LoaderOptions {
  /// Samples in a batch of this rank; see DistributedSampler for the last one. Requires: >= 1.
  TORCH_ARG(int64_t, batch_size) = 1;
  /// A new order for each epoch, from the run's seed.
  TORCH_ARG(bool, shuffle) = false;
  /// Leave out what does not fill a batch on every rank.
  TORCH_ARG(bool, drop_last) = false;
  /// Threads that load ahead; 0: batches are loaded when asked for. The dataset's get() must then
  /// be safe to call from several threads. Requires: >= 0.
  TORCH_ARG(int, workers) = 0;
  /// How many epochs one loop over the loader runs. Requires: >= 1.
  TORCH_ARG(int64_t, epochs) = 1;
  /// Runtime::loader compares the dataset's size, its first and its last sample across ranks when
  /// it makes the loader. False: it does not, for data that is one dataset and yet differs.
  TORCH_ARG(bool, compare_ranks) = true;

 public:
  /// Throws Error naming the option.
  void validate() const;
};

}  // namespace lockstep
