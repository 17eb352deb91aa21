#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace lockstep::detail {

/// The parameters that forward() of a module uses. For modules of LibTorch and this library (and
/// derived ones) these are public members, which a program may have replaced, as in decoder->weight
/// = encoder->weight. Not covered: torch::nn::RNN, LSTM and GRU, which use one block.
class UsedParameters {
 public:
  explicit UsedParameters(const torch::nn::Module& module);
  /// The member with this name if it is a trainable leaf or one of `parameters` (the TensorImpls of
  /// the model's parameters); else `registered`. A value that forward computes (weight norm) does
  /// not count.
  const at::Tensor& find(const std::string& name, const at::Tensor& registered,
                         const std::unordered_set<const void*>& parameters) const;

 private:
  std::vector<std::pair<const char*, const at::Tensor*>> members_;
};

}  // namespace lockstep::detail
