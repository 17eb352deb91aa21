#pragma once

#include <lockstep/amp/model.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep {

/// Collects tensors under their names, each tensor once: further names become aliases.
class TensorList {
 public:
  void add(const std::string& name, const at::Tensor& tensor, bool in_norm);
  /// The same where `registered`, under that name, is not what the module uses: `used` is.
  void add_tied(const std::string& name, const at::Tensor& used, bool in_norm,
                const at::Tensor& registered);
  /// The tensors in the order of their first names. Throws Error naming the two where different
  /// tensors overlap in memory.
  std::vector<ModelTensor> take_disjoint();
  std::vector<ModelTensor> take() { return std::move(tensors_); }

 private:
  std::vector<ModelTensor> tensors_;
  std::unordered_map<const void*, size_t> index_;  // by TensorImpl
};

}  // namespace lockstep
