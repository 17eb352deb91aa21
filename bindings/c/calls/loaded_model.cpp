#include <lockstep/bindings/c/calls/loaded_model.h>
#include <lockstep/collectives/check.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <filesystem>
#include <utility>

namespace lockstep::c {
namespace {

class FromExport final : public LoadedModel {
 public:
  FromExport(const std::string& path, const ExportedModuleOptions& options)
      : module_(path, options) {}

  std::vector<at::Tensor> outputs(const std::vector<at::Tensor>& inputs) override {
    return module_->outputs(inputs);
  }
  Model model() override { return module_; }
  std::unique_ptr<EvalMode> eval_mode() override { return std::make_unique<EvalMode>(module_); }

 private:
  ExportedModule module_;
};

void collect(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) {
    tensors.push_back(value.toTensor());
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      collect(element, tensors);
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      collect(element, tensors);
    }
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      collect(entry.value(), tensors);
    }
  }
}

class FromTorchScript final : public LoadedModel {
 public:
  explicit FromTorchScript(const std::string& path) : module_(torch::jit::load(path)) {
    module_.train();
  }

  std::vector<at::Tensor> outputs(const std::vector<at::Tensor>& inputs) override {
    std::vector<at::Tensor> tensors;
    collect(module_.forward({inputs.begin(), inputs.end()}), tensors);
    return tensors;
  }
  Model model() override { return module_; }
  std::unique_ptr<EvalMode> eval_mode() override { return std::make_unique<EvalMode>(module_); }

 private:
  torch::jit::Module module_;
};

}  // namespace

bool LoadedModel::is_exported(const std::string& path) {
  return std::filesystem::path(path).extension() == ".pt2";
}

std::unique_ptr<LoadedModel> LoadedModel::read(const std::string& path,
                                               const ExportedModuleOptions& options) {
  if (is_exported(path)) {
    return std::make_unique<FromExport>(path, options);
  }
  LOCKSTEP_CHECK_CODE(std::filesystem::is_regular_file(path), ExitCode::data, path,
                      ": there is no such file");
  return std::make_unique<FromTorchScript>(path);
}

c10::Device LoadedModel::device() {
  if (!parameter_.defined()) {
    const Model all = model();
    if (all.parameters().empty()) {
      return c10::kCPU;
    }
    parameter_ = all.parameters().front().tensor;
  }
  return parameter_.device();
}

}  // namespace lockstep::c
