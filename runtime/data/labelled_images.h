#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep {

/// Images with a class each, in memory: a dataset for Loader.
/// Threads: get_batch may be called from several at a time.
struct LabelledImages {
  at::Tensor images;  // uint8, [N, channels, height, width]
  at::Tensor labels;  // int64, [N]

  size_t size() const { return static_cast<size_t>(labels.size(0)); }
  /// (images, labels) of these samples, copied.
  std::pair<at::Tensor, at::Tensor> get_batch(const std::vector<size_t>& indices) const;
};

}  // namespace lockstep
