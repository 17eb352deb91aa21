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
  std::vector<at::Tensor> replaced = {};  // registered under an alias, but no longer used
};

/// A view of a torch::nn or torch::jit module: its tensors by name, each once, in registration
/// order. Converts implicitly from what users hold (a holder such as `ResNet18`, a shared_ptr to
/// a module, a module, a torch::jit::Module) and shares its tensors.
/// Weights are tied as in Python, before the Model is made: decoder->weight = encoder->weight. That
/// replaces the member that forward() uses, not what LibTorch has registered under its name, so for
/// LibTorch's own modules and this library's the Model looks at the member. Both names then belong
/// to one tensor. Modules of the program's own: register what is used, under each name it is to
/// have (register_parameter("tied", encoder->weight)), and nothing else.
/// Threads and ranks: a plain value; each rank makes its own, no communication.
/// Throws Error where two different parameters share storage, as after set_data(): the tie would be
/// lost in flat storage.
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

/// Lets the registered tensors that a tie has replaced show the tensor in their place (they share
/// its memory, and never have a gradient), so that parameters(), torch::save() and torch::load()
/// of the module are right. To be called again when the memory of parameters has changed. Local.
void show_ties(const Model& model);

}  // namespace lockstep
