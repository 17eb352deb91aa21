#pragma once

#include <cstddef>
#include <utility>

namespace lockstep {

/// A dataset whose samples are those of another one, each passed through a function. See
/// transformed().
/// Threads: as many as may call the other dataset's get() and the function at the same time.
template <typename Dataset, typename Function>
class TransformedDataset {
 public:
  TransformedDataset(Dataset dataset, Function function)
      : dataset_(std::move(dataset)), function_(std::move(function)) {}

  size_t size() const { return dataset_.size(); }
  auto get(size_t index) { return function_(dataset_.get(index)); }

  const Dataset& dataset() const { return dataset_; }

 private:
  Dataset dataset_;
  Function function_;
};

/// A dataset for Loader whose get(index) returns function(dataset.get(index)):
///
///   auto train = lockstep::transformed(lockstep::read_cifar10(files), [](auto sample) {
///     const at::Tensor image = lockstep::random_flip(lockstep::random_crop(sample.first, 32, 32,
///     4)); return std::make_pair(lockstep::normalized(image, mean, deviation), sample.second);
///   });
///
/// LibTorch's random operators in `function` draw the numbers of the sample (see Loader).
template <typename Dataset, typename Function>
TransformedDataset<Dataset, Function> transformed(Dataset dataset, Function function) {
  return {std::move(dataset), std::move(function)};
}

}  // namespace lockstep
