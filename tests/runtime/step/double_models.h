#pragma once

#include <ATen/ATen.h>
#include <lockstep/runtime/trainer.h>
#include <torch/nn/module.h>

#include <string>
#include <vector>

namespace lockstep::testing {

/// Parameters "p0", "p1", ..., with copies of the values. In a loss, gradients are given.
struct Weights : torch::nn::Module {
  explicit Weights(const std::vector<at::Tensor>& values) {
    for (const at::Tensor& value : values) {
      all.push_back(register_parameter("p" + std::to_string(all.size()), value.clone()));
    }
  }
  /// A loss whose gradients are these.
  at::Tensor loss(const std::vector<at::Tensor>& gradients) const {
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (size_t i = 0; i < all.size(); ++i) {
      sum = sum + (all[i] * gradients[i]).sum();
    }
    return sum;
  }
  std::vector<at::Tensor> values() const {
    std::vector<at::Tensor> result;
    for (const at::Tensor& parameter : all) {
      result.push_back(parameter.detach().clone());
    }
    return result;
  }
  std::vector<at::Tensor> all;
};

/// fp64 numbers that depend on `seed` alone.
inline std::vector<at::Tensor> doubles(const std::vector<std::vector<int64_t>>& sizes,
                                       int64_t seed) {
  std::vector<at::Tensor> result;
  for (const auto& each : sizes) {
    const int64_t count = c10::multiply_integers(each);
    const at::Tensor places = at::arange(count, at::kDouble) + 1000.0 * static_cast<double>(seed);
    result.push_back(at::sin(places * 0.7311).view(each));
  }
  return result;
}

inline bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  bool result = a.size() == b.size();
  for (size_t i = 0; result && i < a.size(); ++i) {
    result = a[i].scalar_type() == b[i].scalar_type() && at::equal(a[i], b[i]);
  }
  return result;
}

/// The values of masters() or averaged().
inline std::vector<at::Tensor> values(
    const std::vector<std::pair<std::string, at::Tensor>>& named) {
  std::vector<at::Tensor> result;
  for (const auto& each : named) {
    result.push_back(each.second.clone());
  }
  return result;
}

}  // namespace lockstep::testing
