#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

struct LoaderOptions {
  /// Samples per batch on this rank; see DistributedSampler for the last batch. Requires: >= 1.
  TORCH_ARG(int64_t, batch_size) = 1;
  /// True: a new order for each epoch, derived from the run's seed.
  TORCH_ARG(bool, shuffle) = false;
  /// How often each sample is drawn, relative to the others: one number >= 0 for each sample of the
  /// dataset, 1-dimensional, the same on every rank. An epoch then has as many samples as the
  /// dataset, drawn with replacement, whatever `shuffle` is: a sample may come several times, or
  /// not at all. Undefined: each sample comes once. See DistributedSampler.
  TORCH_ARG(at::Tensor, weights) = {};
  /// True: leave out samples that do not fill a batch on every rank.
  TORCH_ARG(bool, drop_last) = false;
  /// Micro-batches of an update on all ranks together (TrainerOptions::leaves): samples are dealt
  /// to leaves, so a leaf has the same samples on any number of ranks. batch_size is that of a
  /// leaf. 0: samples are dealt to ranks. Requires: >= 0, a multiple of the number of ranks.
  /// Refused by local_loader.
  TORCH_ARG(int64_t, leaves) = 0;
  /// Number of threads that load batches ahead. 0: a batch is loaded when the loop asks for it,
  /// unless there is prefetch.
  /// With workers, the dataset's get() must be safe to call from several threads. Requires: >= 0.
  TORCH_ARG(int, workers) = 0;
  /// Maximum number of batches that are prepared ahead of the loop, off its thread: by `workers`
  /// threads, or by one thread if workers is 0. 0: 2 * workers - 1, none without workers.
  /// On a CUDA device, batches of Runtime::loader and local_loader are copied ahead too, through
  /// page-locked memory on a stream of their own: the loop gets tensors that are on the device.
  /// Then the device holds up to prefetch + 1 batches. Tensors are found in the types that moved()
  /// takes; batches of other types stay on the host. Requires: >= 0.
  TORCH_ARG(int, prefetch) = 0;
  /// Number of epochs that one loop over the loader runs. Requires: >= 1.
  TORCH_ARG(int64_t, epochs) = 1;
  /// True: Runtime::loader compares the dataset's size, first sample, last sample and weights
  /// across ranks when it makes the loader, and all loaders of a Runtime compare batch_size,
  /// shuffle, drop_last and epochs. False: no comparison, for a dataset that is the same on all
  /// ranks although its samples differ, or for ranks that get different batches on purpose
  /// (TrainerOptions::uneven_data).
  TORCH_ARG(bool, compare_ranks) = true;

 public:
  /// Throws an Error that names the option with a value out of range.
  void validate() const;
  /// Throws Error for an option that Runtime::local_loader() has no use for.
  void validate_for_local_loader() const;
  /// Throws Error for an option that Runtime::validation_loader() has no use for, and (exit code
  /// data) unless there are samples.
  void validate_for_validation_loader(int64_t samples) const;
  /// The weights as numbers; empty if there are none. Throws Error unless they are one for each of
  /// `size` samples.
  std::vector<double> weights_of(size_t size) const;
  /// Threads that load batches, and the maximum number of batches that they load ahead. Both are 0
  /// if batches are loaded when the loop asks for them.
  int threads() const { return prefetch() > 0 && workers() == 0 ? 1 : workers(); }
  size_t ahead() const {
    return static_cast<size_t>(prefetch() > 0 ? prefetch() : std::max(2 * workers() - 1, 0));
  }
};

}  // namespace lockstep
