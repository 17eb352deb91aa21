#include <lockstep/collectives/check.h>
#include <lockstep/inputs/exported/graph/model.h>
#include <lockstep/inputs/exported_module.h>

#include <ostream>
#include <utility>

namespace lockstep {

namespace {

using exported::StoredTensor;

/// The module with the prefix of `name`; makes it and its parents if missing. Writes the last part
/// of the name to `own`.
torch::nn::Module& owner_of(torch::nn::Module& root, const exported::Model& model,
                            const std::string& name, std::string& own) {
  torch::nn::Module* module = &root;
  size_t begin = 0;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', begin)) {
    const std::string child = name.substr(begin, dot - begin);
    const auto children = module->named_children();
    const auto* known = children.find(child);
    if (known != nullptr) {
      module = known->get();
    } else {
      const std::string type = model.module_type(name.substr(0, dot));
      module =
          module
              ->register_module(child, type.empty() ? std::make_shared<torch::nn::Module>()
                                                    : std::make_shared<torch::nn::Module>(type))
              .get();
    }
    begin = dot + 1;
  }
  own = name.substr(begin);
  return *module;
}

}  // namespace

ExportedModuleImpl::ExportedModuleImpl(const std::string& path,
                                       const ExportedModuleOptions& options)
    : ExportedModuleImpl(std::make_unique<exported::Model>(path, options.operators(),
                                                           options.without_no_grad())) {}

ExportedModuleImpl::ExportedModuleImpl(std::unique_ptr<exported::Model> model)
    : torch::nn::Module("ExportedModule"), model_(std::move(model)) {
  for (const StoredTensor& stored : model_->registered()) {
    try {
      std::string own;
      torch::nn::Module& owner = owner_of(*this, *model_, stored.name, own);
      if (stored.parameter) {
        owner.register_parameter(own, stored.tensor, stored.tensor.requires_grad());
      } else {
        owner.register_buffer(own, stored.tensor);
      }
    } catch (const c10::Error& error) {
      exported::refuse(model_->path(), "the name '", stored.name,
                       "' is not one of a parameter or buffer: ", error.what_without_backtrace());
    }
  }
}

ExportedModuleImpl::~ExportedModuleImpl() = default;

std::vector<c10::IValue> ExportedModuleImpl::leaves(const std::vector<c10::IValue>& inputs) {
  return model_->run(inputs, is_training());
}

at::Tensor ExportedModuleImpl::forward(const at::Tensor& input, const at::Tensor& second,
                                       const at::Tensor& third, const at::Tensor& fourth) {
  std::vector<c10::IValue> inputs = {input};
  for (const at::Tensor* next : {&second, &third, &fourth}) {
    if (next->defined()) {
      inputs.emplace_back(*next);
    }
  }
  std::vector<c10::IValue> results = leaves(inputs);
  LOCKSTEP_CHECK(results.size() == 1 && results[0].isTensor(), "ExportedModule: ", model_->path(),
                 " returns ", results.size(), " values (tensors: ", c10::Join(", ", output_names()),
                 "), not one tensor. Call run() or outputs()");
  return std::move(results[0]).toTensor();
}

c10::IValue ExportedModuleImpl::run(const std::vector<c10::IValue>& inputs) {
  return model_->program(is_training()).tree.build(leaves(inputs));
}

std::vector<at::Tensor> ExportedModuleImpl::outputs(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> tensors;
  for (c10::IValue& leaf : leaves({inputs.begin(), inputs.end()})) {
    if (leaf.isTensor()) {
      tensors.push_back(std::move(leaf).toTensor());
    }
  }
  return tensors;
}

std::vector<std::string> ExportedModuleImpl::input_names() const {
  return model_->program(is_training()).inputs.names();
}

std::vector<std::string> ExportedModuleImpl::output_names() const {
  return model_->program(is_training()).output_tensors;
}

void ExportedModuleImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  to(device, non_blocking);
  to(dtype, non_blocking);
}

void ExportedModuleImpl::to(torch::Dtype dtype, bool non_blocking) {
  // As Python's to(dtype), and unlike LibTorch's, does not convert integers.
  std::vector<std::pair<at::Tensor, at::Tensor>> integers;
  for (const at::Tensor& buffer : buffers()) {
    if (!buffer.is_floating_point() && !buffer.is_complex()) {
      integers.emplace_back(buffer, buffer.detach());
    }
  }
  Module::to(dtype, non_blocking);
  for (auto& [buffer, kept] : integers) {
    buffer.set_data(kept);
  }
  model_->move(std::nullopt, dtype, non_blocking);
}

void ExportedModuleImpl::to(torch::Device device, bool non_blocking) {
  Module::to(device, non_blocking);
  model_->move(device, std::nullopt, non_blocking);
}

std::shared_ptr<torch::nn::Module> ExportedModuleImpl::clone(
    const std::optional<torch::Device>& device) const {
  const std::shared_ptr<ExportedModuleImpl> made(
      new ExportedModuleImpl(std::make_unique<exported::Model>(model_->copy(device))));
  made->train(is_training());
  return made;
}

void ExportedModuleImpl::save(
    const std::string& path, const std::vector<std::pair<std::string, at::Tensor>>& weights) const {
  model_->save(path, weights);
}

void ExportedModuleImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::ExportedModule(" << model_->path() << ")";
}

}  // namespace lockstep
