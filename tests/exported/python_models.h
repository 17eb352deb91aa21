#pragma once

#include <lockstep/checkpointing/snapshot/impl/safetensors_file.h>
#include <lockstep/inputs/exported_module.h>
#include <torch/torch.h>

#include <string>
#include <vector>

namespace lockstep::testing {

/// A model that export_models.py exported, and what Python computed with it.
struct PythonModel {
  explicit PythonModel(const std::string& model_name)
      : name(model_name), expected(folder() + "/" + name + ".safetensors") {
    for (int i = 0; expected.find("input." + std::to_string(i)) != nullptr; ++i) {
      inputs.push_back(expected.tensor("input." + std::to_string(i)).clone());
    }
    target = expected.tensor("target").clone();
  }

  static std::string folder() { return LOCKSTEP_EXPORTED_MODELS; }
  static std::string archive(const std::string& name) { return folder() + "/" + name + ".pt2"; }
  ExportedModule load() const {
    return ExportedModule(archive(name), ExportedModuleOptions().without_no_grad(true));
  }
  std::vector<c10::IValue> values() const { return {inputs.begin(), inputs.end()}; }

  /// The loss of export_models.py.
  at::Tensor loss(ExportedModule& model) const { return loss(model, inputs, target); }
  at::Tensor loss(ExportedModule& model, const std::vector<at::Tensor>& x,
                  const at::Tensor& y) const {
    if (name == "forces") {
      const at::Tensor positions = x[0].detach().clone().requires_grad_(true);
      const at::Tensor energy = model->forward(positions).sum();
      const at::Tensor slope =
          torch::autograd::grad({energy}, {positions}, {}, std::nullopt, /*create_graph=*/true)[0];
      return (slope + y).square().mean() + energy.square() * 1e-3;
    }
    if (name == "several") {
      const std::vector<at::Tensor> outputs = model->outputs(x);
      return at::cross_entropy_loss(outputs.at(0), y) + outputs.at(1).square().mean() +
             outputs.at(2).square().mean();
    }
    const at::Tensor output = model->outputs(x).at(0);
    if (name == "mlp") {
      return at::mse_loss(output, y);
    }
    return output.dim() == 3 ? at::cross_entropy_loss(output.flatten(0, 1), y.flatten())
                             : at::cross_entropy_loss(output, y);
  }

  /// Whether fp64 tensors that fused optimizers updated are Python's: bit for bit where LibTorch
  /// fuses products and sums as lockstep does, which it does on processors that can, else to 12
  /// digits.
  static bool same(const at::Tensor& ours, const at::Tensor& pythons) {
    return at::get_cpu_capability() != "DEFAULT" ? at::equal(ours, pythons)
                                                 : at::allclose(ours, pythons, 1e-12, 1e-14);
  }

  std::string name;
  snapshot::SafetensorsFile expected;
  std::vector<at::Tensor> inputs;
  at::Tensor target;
};

}  // namespace lockstep::testing
