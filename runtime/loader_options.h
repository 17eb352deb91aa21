#pragma once

#include <torch/arg.h>

#include <cstdint>

namespace lockstep {

struct LoaderOptions {
  /// Samples per batch on this rank; see DistributedSampler for the last batch. Requires: >= 1.
  TORCH_ARG(int64_t, batch_size) = 1;
  /// True: a new order for each epoch, derived from the run's seed.
  TORCH_ARG(bool, shuffle) = false;
  /// True: leave out samples that do not fill a batch on every rank.
  TORCH_ARG(bool, drop_last) = false;
  /// Number of threads that load batches ahead. 0: a batch is loaded when the loop asks for it.
  /// With workers, the dataset's get() must be safe to call from several threads. Requires: >= 0.
  TORCH_ARG(int, workers) = 0;
  /// Number of epochs that one loop over the loader runs. Requires: >= 1.
  TORCH_ARG(int64_t, epochs) = 1;
  /// True: Runtime::loader compares the dataset's size, first sample and last sample across ranks
  /// when it makes the loader. False: no comparison, for a dataset that is the same on all ranks
  /// although its samples differ.
  TORCH_ARG(bool, compare_ranks) = true;

 public:
  /// Throws an Error that names the option with a value out of range.
  void validate() const;
};

}  // namespace lockstep
