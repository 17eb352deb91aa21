#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/amp/model.h>
#include <lockstep/inputs/exported_module.h>
#include <lockstep/runtime/evaluation_scopes.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::c {

/// A model that was read from a file: an ExportedModule or a torch::jit::Module.
class LoadedModel {
 public:
  virtual ~LoadedModel() = default;
  /// Whether a file is read as one of torch.export.save(): *.pt2.
  static bool is_exported(const std::string& path);
  /// Reads a file of torch.export.save(), else a TorchScript file, which has no options; the model
  /// is in training mode. Throws Error (exit code data), or LibTorch's error for an invalid
  /// TorchScript file.
  static std::unique_ptr<LoadedModel> read(const std::string& path,
                                           const ExportedModuleOptions& options);

  /// Runs the model; returns all tensors of its output, in the order of the containers.
  virtual std::vector<at::Tensor> outputs(const std::vector<at::Tensor>& inputs) = 0;
  virtual Model model() = 0;
  /// While the result lives, the model is in eval mode.
  virtual std::unique_ptr<EvalMode> eval_mode() = 0;
  /// The device of the parameters; the host if there are none.
  c10::Device device();

 private:
  at::Tensor parameter_;  // any parameter of the model
};

}  // namespace lockstep::c
