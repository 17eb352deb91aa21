#include <lockstep/amp/model_builder.h>
#include <lockstep/amp/norm_types.h>
#include <torch/csrc/jit/api/module.h>

namespace lockstep {

namespace {

bool is_norm(const torch::jit::Module& module) {
  const auto name = module.type()->name();
  return name.has_value() && is_norm_type(name->name());
}

void collect(const torch::jit::Module& module, const std::string& prefix, TensorList& parameters,
             TensorList& buffers) {
  const bool norm = is_norm(module);
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    parameters.add(prefix + parameter.name, parameter.value, norm);
  }
  for (const auto& buffer : module.named_buffers(/*recurse=*/false)) {
    buffers.add(prefix + buffer.name, buffer.value, norm);
  }
  for (const auto& child : module.named_children()) {
    collect(child.value, prefix + child.name + ".", parameters, buffers);
  }
}

}  // namespace

Model::Model(const torch::jit::Module& module)
    : keep_alive_(std::make_shared<torch::jit::Module>(module)) {
  TensorList parameters;
  TensorList buffers;
  collect(module, "", parameters, buffers);
  parameters_ = parameters.take_disjoint();
  buffers_ = buffers.take();
}

}  // namespace lockstep
