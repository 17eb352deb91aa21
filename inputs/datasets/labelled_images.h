#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {

/// Images and their class labels, in memory. Can be used as a dataset for Loader.
/// Threads: several threads may call get and get_batch at the same time.
struct LabelledImages {
  at::Tensor images;  // uint8, [N, channels, height, width]
  at::Tensor labels;  // int64, [N]

  size_t size() const { return static_cast<size_t>(labels.size(0)); }
  /// A copy of one image, [channels, height, width], and its label, for transformed().
  std::pair<at::Tensor, int64_t> get(size_t index) const;
  /// Copies of (images, labels) of the samples `indices`.
  std::pair<at::Tensor, at::Tensor> get_batch(const std::vector<size_t>& indices) const;
};

}  // namespace lockstep
