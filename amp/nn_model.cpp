#include <lockstep/amp/model_builder.h>
#include <lockstep/amp/norm_types.h>
#include <lockstep/amp/used_parameters.h>
#include <lockstep/collectives/error.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/normalization.h>

#include <unordered_set>
#include <utility>

namespace lockstep {

namespace {

template <typename... Norms>
bool is_any(const torch::nn::Module& module) {
  return ((dynamic_cast<const Norms*>(&module) != nullptr) || ...);
}

/// By class, so that classes derived from LibTorch's count, or by name.
bool is_norm(const torch::nn::Module& module) {
  return is_any<torch::nn::BatchNorm1dImpl, torch::nn::BatchNorm2dImpl, torch::nn::BatchNorm3dImpl,
                torch::nn::InstanceNorm1dImpl, torch::nn::InstanceNorm2dImpl,
                torch::nn::InstanceNorm3dImpl, torch::nn::LayerNormImpl, torch::nn::GroupNormImpl>(
             module) ||
         is_norm_type(module.name());
}

using Impls = std::unordered_set<const void*>;

void collect(const torch::nn::Module& module, const std::string& prefix, const Impls& registered,
             TensorList& parameters, TensorList& buffers) {
  const bool norm = is_norm(module);
  const UsedParameters used(module);
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    const at::Tensor& member = used.find(parameter.key(), parameter.value(), registered);
    if (member.is_same(parameter.value())) {
      parameters.add(prefix + parameter.key(), member, norm);
    } else {
      parameters.add_tied(prefix + parameter.key(), member, norm, parameter.value());
    }
  }
  for (const auto& buffer : module.named_buffers(/*recurse=*/false)) {
    buffers.add(prefix + buffer.key(), buffer.value(), norm);
  }
  for (const auto& child : module.named_children()) {
    collect(*child.value(), prefix + child.key() + ".", registered, parameters, buffers);
  }
}

}  // namespace

Model::Model(torch::nn::Module& module) : module_(&module) {
  TensorList parameters;
  TensorList buffers;
  Impls registered;
  for (const at::Tensor& parameter : module.parameters()) {
    registered.insert(parameter.unsafeGetTensorImpl());
  }
  collect(module, "", registered, parameters, buffers);
  parameters_ = parameters.take_disjoint();
  buffers_ = buffers.take();
}

namespace {

torch::nn::Module& checked(const std::shared_ptr<torch::nn::Module>& module) {
  LOCKSTEP_CHECK(module != nullptr, "Model: the module is empty (nullptr)");
  return *module;
}

}  // namespace

Model::Model(std::shared_ptr<torch::nn::Module> module) : Model(checked(module)) {
  keep_alive_ = std::move(module);
}

}  // namespace lockstep
