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

/// The parameters that forward() of a module uses: public members where the module is one of
/// LibTorch's or this library's (or derived from one), which a program may have replaced, as in
/// decoder->weight = encoder->weight. Not covered: layers of torch::nn::RNN, LSTM and GRU, which
/// keep theirs in one block.
class UsedParameters {
 public:
  explicit UsedParameters(const torch::nn::Module& module);
  /// The member of this name, if that is a tensor to be trained or one of `parameters` (the
  /// TensorImpls of all the model's); else `registered`. What a forward computes anew (weight norm)
  /// is no parameter.
  const at::Tensor& find(const std::string& name, const at::Tensor& registered,
                         const std::unordered_set<const void*>& parameters) const;

 private:
  std::vector<std::pair<const char*, const at::Tensor*>> members_;
};

}  // namespace lockstep::detail
