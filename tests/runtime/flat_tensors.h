#pragma once

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::testing {

/// All elements one after the other, fp32: a copy.
inline at::Tensor flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flats;
  for (const at::Tensor& tensor : tensors) {
    flats.push_back(tensor.detach().reshape({-1}).to(at::kFloat));
  }
  return at::cat(flats);
}

inline at::Tensor flat(const std::vector<std::pair<std::string, at::Tensor>>& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& each : named) {
    tensors.push_back(each.second);
  }
  return flat(tensors);
}

}  // namespace lockstep::testing
