#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
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

/// One parameter or buffer of a model, with the facts that precision rules use.
struct ModelTensor {
  std::string name;                  // PyTorch's dotted name; the first name if the tensor is tied
  std::vector<std::string> aliases;  // the other names of the same tensor (tied weights)
  at::Tensor tensor;                 // the tensor that the model uses, not a copy
  bool in_norm = false;              // owned by a BatchNorm, LayerNorm, GroupNorm, InstanceNorm...
  std::vector<at::Tensor> replaced = {};  // registered under an alias, but not used
  std::vector<std::string> owners = {};   // the classes of the modules that own it: "LayerNorm"
};

/// A view of a torch::nn or torch::jit module: each tensor once, with its names, in registration
/// order. Converts implicitly from a module holder (such as `ResNet18`), a shared_ptr to a module,
/// a module, or a torch::jit::Module. Shares the tensors of the module.
/// Tied weights: tie as in Python, before the Model is made: decoder->weight = encoder->weight. The
/// assignment replaces the member that forward() uses, but not the tensor that LibTorch has
/// registered under that name. For the modules of LibTorch and lockstep, the Model therefore reads
/// the member, and one tensor gets both names. A module class of the program must register the
/// tensor that it uses, under each of its names (register_parameter("tied", encoder->weight)), and
/// no other tensor.
/// Threads and ranks: a plain value; each rank makes its own, without communication.
/// Throws Error if two different parameters share storage, as after set_data(): flat storage would
/// lose the tie.
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
  /// Counts the tensors that `is_norm` names as those of norms, too.
  void add_norms(const std::function<bool(const ModelTensor&)>& is_norm);
  /// The torch::nn module; null for a torch::jit module.
  torch::nn::Module* module() const { return module_; }

 private:
  std::shared_ptr<const void> keep_alive_;
  torch::nn::Module* module_ = nullptr;
  std::vector<ModelTensor> parameters_;
  std::vector<ModelTensor> buffers_;
};

/// For each registered tensor that a tie replaced: makes it share the memory of the tensor that the
/// model uses, so that parameters(), torch::save() and torch::load() of the module are right. A
/// replaced tensor never gets a gradient. Call again when the memory of parameters has changed.
/// Local.
void show_ties(const Model& model);

}  // namespace lockstep
