#pragma once

#include <cstddef>
#include <type_traits>
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
  auto get(size_t index) {
    if constexpr (std::is_invocable_v<Function&, decltype(dataset_.get(index))>) {
      return function_(dataset_.get(index));
    } else {
      auto sample = dataset_.get(index);
      return std::make_pair(function_(std::move(sample.first)), std::move(sample.second));
    }
  }

  const Dataset& dataset() const { return dataset_; }

 private:
  Dataset dataset_;
  Function function_;
};

/// A dataset for Loader whose get(index) returns function(dataset.get(index)). For samples that are
/// pairs, such as (image, label), the function may take the first part alone; the second one stays:
///
///   const auto images = lockstep::read_cifar10(files);
///   auto train = lockstep::transformed(images, [](const at::Tensor& image) {
///     const at::Tensor window = lockstep::random_flip(lockstep::random_crop(image, 32, 32, 4));
///     return lockstep::normalized(window, mean, deviation);
///   });
///
/// An `auto` parameter is the whole sample: a function of the image alone names its type.
/// LibTorch's random operators in `function` draw the numbers of the sample (see Loader).
template <typename Dataset, typename Function>
TransformedDataset<Dataset, Function> transformed(Dataset dataset, Function function) {
  return {std::move(dataset), std::move(function)};
}

}  // namespace lockstep
