#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace torch {
namespace nn {
class Module;
template <typename Contained>
class ModuleHolder;
}  // namespace nn
namespace jit {
struct Module;
}  // namespace jit
}  // namespace torch

namespace lockstep {

/// One parameter or buffer of a model, with what precision rules need to know about it.
struct ModelTensor {
  std::string name;                  // PyTorch's dotted name; the first one where it is shared
  std::vector<std::string> aliases;  // the other names of the same tensor (tied weights)
  at::Tensor tensor;                 // the very tensor that the model uses, not a copy
  bool in_norm = false;              // owned by a BatchNorm, LayerNorm, GroupNorm, InstanceNorm...
};

/// A view of a torch::nn or torch::jit module: its tensors by name, each once, in registration
/// order. Converts implicitly from what users hold (a holder such as `ResNet18`, a shared_ptr to
/// a module, a module, a torch::jit::Module) and shares its tensors.
/// Threads and ranks: a plain value; each rank makes its own, no communication.
/// Throws Error where two different parameters share storage: assign one tensor to both names
/// (register_parameter) instead, otherwise the tie would be lost in flat storage.
class Model {
 public:
  Model(torch::nn::Module& module);                  // NOLINT(google-explicit-constructor)
  Model(std::shared_ptr<torch::nn::Module> module);  // NOLINT(google-explicit-constructor)
  Model(const torch::jit::Module& module);           // NOLINT(google-explicit-constructor)
  template <typename M>
  Model(const torch::nn::ModuleHolder<M>& holder)  // NOLINT(google-explicit-constructor)
      : Model(std::shared_ptr<torch::nn::Module>(holder.ptr())) {}
  template <typename M>
  Model(const std::shared_ptr<M>& module)  // NOLINT(google-explicit-constructor)
      : Model(std::shared_ptr<torch::nn::Module>(module)) {}

  /// All parameters, trainable or frozen, each once.
  const std::vector<ModelTensor>& parameters() const { return parameters_; }
  const std::vector<ModelTensor>& buffers() const { return buffers_; }
  /// The module, where it is one of torch::nn; else null.
  torch::nn::Module* module() const { return module_; }

 private:
  std::shared_ptr<const void> keep_alive_;
  torch::nn::Module* module_ = nullptr;
  std::vector<ModelTensor> parameters_;
  std::vector<ModelTensor> buffers_;
};

}  // namespace lockstep
