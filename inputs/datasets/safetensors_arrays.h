#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

/// A dataset of tensors of one safetensors file, mapped into memory: sample i is row i of each.
///
///   lockstep::SafetensorsArrays data("train.safetensors", {"images", "labels"});
///
/// Can be used as a dataset for Loader; for pairs, see transformed(). The file must not change
/// while it is open.
/// Ranks: local. Threads: several threads may call get at the same time.
/// Throws Error (exit code data) that names file and tensor: missing, truncated or malformed file,
/// a tensor that is not there or has no dimension, different numbers of rows.
class SafetensorsArrays {
 public:
  /// `names`: which tensors, in this order.
  SafetensorsArrays(const std::string& path, const std::vector<std::string>& names);

  /// Number of rows.
  size_t size() const { return static_cast<size_t>(tensors_.front().size(0)); }
  /// A copy of row `index` of each tensor.
  std::vector<at::Tensor> get(size_t index) const;
  /// The tensors. They share the mapped memory where that is aligned.
  const std::vector<at::Tensor>& tensors() const { return tensors_; }

 private:
  std::vector<at::Tensor> tensors_;
};

}  // namespace lockstep
