#include <ATen/core/grad_mode.h>
#include <lockstep/amp/impl/memory_extent.h>
#include <lockstep/amp/layers/norm_types.h>
#include <lockstep/amp/model.h>
#include <lockstep/amp/model/used_parameters.h>
#include <lockstep/collectives/check.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace lockstep {

namespace {

/// The module that registers a tensor.
struct Owner {
  std::string type;
  bool is_norm;
};

/// Collects tensors under their names, each tensor once: further names become aliases.
class TensorList {
 public:
  void add(const std::string& name, const at::Tensor& tensor, const Owner& owner);
  /// The same if the module uses `used` in place of the tensor `registered` with this name.
  void add_tied(const std::string& name, const at::Tensor& used, const Owner& owner,
                const at::Tensor& registered);
  /// The tensors in the order of their first names. Throws Error naming the two where different
  /// tensors overlap in memory.
  std::vector<ModelTensor> take_disjoint();
  std::vector<ModelTensor> take() { return std::move(tensors_); }

 private:
  std::vector<ModelTensor> tensors_;
  std::unordered_map<const void*, size_t> index_;  // by TensorImpl
};

struct Placed {
  detail::MemoryExtent extent;
  size_t index;
};

void TensorList::add(const std::string& name, const at::Tensor& tensor, const Owner& owner) {
  const auto [entry, added] = index_.emplace(tensor.unsafeGetTensorImpl(), tensors_.size());
  if (added) {
    tensors_.push_back({name, {}, tensor, owner.is_norm, {}, {owner.type}});
    return;
  }
  ModelTensor& known = tensors_[entry->second];
  known.aliases.push_back(name);
  known.in_norm = known.in_norm || owner.is_norm;
  known.owners.push_back(owner.type);
}

void TensorList::add_tied(const std::string& name, const at::Tensor& used, const Owner& owner,
                          const at::Tensor& registered) {
  add(name, used, owner);
  tensors_[index_.at(used.unsafeGetTensorImpl())].replaced.push_back(registered);
}

std::vector<ModelTensor> TensorList::take_disjoint() {
  std::vector<Placed> placed;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].tensor.has_storage() && !tensors_[i].tensor.is_nested() &&
        tensors_[i].tensor.numel() > 0) {
      placed.push_back({detail::MemoryExtent(tensors_[i].tensor), i});
    }
  }
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::tie(a.extent.storage, a.extent.begin, a.index) <
           std::tie(b.extent.storage, b.extent.begin, b.index);
  });
  for (size_t i = 1; i < placed.size(); ++i) {
    const Placed& a = placed[i - 1];
    const Placed& b = placed[i];
    const size_t first = std::min(a.index, b.index);
    const size_t second = std::max(a.index, b.index);
    LOCKSTEP_CHECK(!a.extent.overlaps(b.extent), "parameters '", tensors_[first].name, "' and '",
                   tensors_[second].name,
                   "' are different tensors that overlap in memory, so updating one would change "
                   "the other. To tie weights, assign the tensor itself, not its data (set_data): "
                   "decoder->weight = encoder->weight");
  }
  return std::move(tensors_);
}

template <typename... Norms>
bool is_any(const torch::nn::Module& module) {
  return ((dynamic_cast<const Norms*>(&module) != nullptr) || ...);
}

/// By class, which includes classes derived from LibTorch's, or by name.
bool is_norm(const torch::nn::Module& module) {
  return is_any<torch::nn::BatchNorm1dImpl, torch::nn::BatchNorm2dImpl, torch::nn::BatchNorm3dImpl,
                torch::nn::InstanceNorm1dImpl, torch::nn::InstanceNorm2dImpl,
                torch::nn::InstanceNorm3dImpl, torch::nn::LayerNormImpl, torch::nn::GroupNormImpl>(
             module) ||
         detail::is_norm_type(module.name());
}

Owner owner_of(const torch::jit::Module& module) {
  const auto name = module.type()->name();
  const std::string type = name.has_value() ? detail::plain_type_name(name->name()) : "";
  return {type, detail::is_norm_type(type)};
}

using Impls = std::unordered_set<const void*>;

void collect(const torch::nn::Module& module, const std::string& prefix, const Impls& registered,
             TensorList& parameters, TensorList& buffers) {
  const Owner owner = {detail::plain_type_name(module.name()), is_norm(module)};
  const detail::UsedParameters used(module);
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    const at::Tensor& member = used.find(parameter.key(), parameter.value(), registered);
    if (member.is_same(parameter.value())) {
      parameters.add(prefix + parameter.key(), member, owner);
    } else {
      parameters.add_tied(prefix + parameter.key(), member, owner, parameter.value());
    }
  }
  // Without weights there is no dtype for the statistics to follow.
  const Owner of_buffers = {
      owner.type, owner.is_norm && !module.named_parameters(/*recurse=*/false).is_empty()};
  for (const auto& buffer : module.named_buffers(/*recurse=*/false)) {
    buffers.add(prefix + buffer.key(), buffer.value(), of_buffers);
  }
  for (const auto& child : module.named_children()) {
    collect(*child.value(), prefix + child.key() + ".", registered, parameters, buffers);
  }
}

void collect(const torch::jit::Module& module, const std::string& prefix, TensorList& parameters,
             TensorList& buffers) {
  const Owner owner = owner_of(module);
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    parameters.add(prefix + parameter.name, parameter.value, owner);
  }
  for (const auto& buffer : module.named_buffers(/*recurse=*/false)) {
    buffers.add(prefix + buffer.name, buffer.value, owner);
  }
  for (const auto& child : module.named_children()) {
    collect(child.value, prefix + child.name + ".", parameters, buffers);
  }
}

torch::nn::Module& checked(const std::shared_ptr<torch::nn::Module>& module) {
  LOCKSTEP_CHECK(module != nullptr, "Model: the module is empty (nullptr)");
  return *module;
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

Model::Model(std::shared_ptr<torch::nn::Module> module) : Model(checked(module)) {
  keep_alive_ = std::move(module);
}

Model::Model(const torch::jit::Module& module)
    : keep_alive_(std::make_shared<torch::jit::Module>(module)) {
  TensorList parameters;
  TensorList buffers;
  collect(module, "", parameters, buffers);
  parameters_ = parameters.take_disjoint();
  buffers_ = buffers.take();
}

void Model::add_norms(const std::function<bool(const ModelTensor&)>& is_norm) {
  for (auto* tensors : {&parameters_, &buffers_}) {
    for (ModelTensor& entry : *tensors) {
      entry.in_norm = entry.in_norm || is_norm(entry);
    }
  }
}

void show_ties(const Model& model) {
  const at::NoGradGuard no_grad;
  for (const ModelTensor& entry : model.parameters()) {
    for (const at::Tensor& replaced : entry.replaced) {
      replaced.set_data(entry.tensor.detach());
    }
  }
}

}  // namespace lockstep
