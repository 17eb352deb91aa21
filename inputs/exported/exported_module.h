#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/arg.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace exported {
class Model;
}  // namespace exported

struct ExportedModuleOptions {
  /// Namespaces of operators that this process has registered (TORCH_LIBRARY) and that the model
  /// may call: "mylib" for torch.ops.mylib. Operators of other namespaces but LibTorch's are
  /// refused.
  TORCH_ARG(std::vector<std::string>, operators) = {};
  /// True: states that Python's forward() has no torch.no_grad() and no detach_(). An archive of
  /// program.run_decompositions() does not say it, and has gradients only with this statement.
  TORCH_ARG(bool, without_no_grad) = false;
};

/// A model that was written in Python, read from an archive of torch.export.save(). Neither Python
/// nor pickle is needed to read and to run it.
///
///   # Python                                        // C++
///   model.train()                                   lockstep::ExportedModule model("model.pt2");
///   program = torch.export.export(model, (x,))      lockstep::Trainer trainer(runtime, model,
///   ...); torch.export.save(program, "model.pt2")         model->forward(x)
///
/// docs/python-models.md walks through an example. Each operator of the program is called through
/// LibTorch's dispatcher, with autograd. So the module trains, casts and moves like every other
/// torch::nn module, and its results have the bits of Python's.
///
/// Parameters and persistent buffers are registered under Python's names, in modules that have the
/// names of Python's classes. A tensor that Python ties has all its names. Buffers that are not
/// persistent and constants are not registered; to(device) moves them, and to(dtype) casts the
/// buffers.
///
/// train() and eval(). An archive holds one program, exported after model.train(), or two, "train"
/// and "eval" (docs/python-models.md). With one program, eval() switches the training flags of its
/// operators off: dropout, dropout_p of attention, batch norm, instance norm, recurrent layers,
/// rrelu. num_batches_tracked is not counted then. A call that passes a constant, such as
/// F.dropout(x, 0.5), keeps it, as in Python. Where a program draws other random numbers or writes
/// to other buffers, Python's forward() may have decided that with `if self.training`: forward()
/// then throws Error after eval(), and the archive needs two programs.
///
/// Devices and dtypes that the program names follow the module if they were the parameters' at
/// export: each device, and the dtype of zeros, ones, full and empty tensors that 16 bits can hold.
/// Casts, arange and random numbers stay as written. Like Python's, to(dtype) keeps integers.
///
/// Errors. The constructor throws Error (exit code data) with the file and the cause: a file that
/// is missing, truncated or damaged (each record has a CRC-32), an unknown major version of the
/// schema, pickled tensors, and operators that are custom, higher-order or missing in this
/// LibTorch. forward(), run() and outputs() throw Error for inputs that do not fit the exported
/// sizes. The operators' own errors name the node and Python's source line. Ranks: local; each rank
/// reads the file. Threads: one at a time, as for every module.
class ExportedModuleImpl : public torch::nn::Module {
 public:
  explicit ExportedModuleImpl(const std::string& path, const ExportedModuleOptions& options = {});
  ~ExportedModuleImpl() override;

  /// Runs the program on tensors, in the order of input_names(). Returns its only output. Throws
  /// Error if the program returns anything else than one tensor: use run() or outputs().
  at::Tensor forward(const at::Tensor& input, const at::Tensor& second = {},
                     const at::Tensor& third = {}, const at::Tensor& fourth = {});
  /// Runs the program on tensors, and on an int for each input that was exported as a dynamic
  /// integer. Returns what Python's forward() returns: a tensor, or tuples, lists and dicts of
  /// tensors and numbers. Dicts have keys of type str. Other containers become tuples.
  c10::IValue run(const std::vector<c10::IValue>& inputs);
  /// Runs the program on tensors. Returns all tensors of the output, in the order of
  /// output_names().
  std::vector<at::Tensor> outputs(const std::vector<at::Tensor>& inputs);

  /// Names of the inputs: Python's argument names; elements of a container have a number after it.
  /// Arguments that were None or a Python number at export are part of the program and left out.
  std::vector<std::string> input_names() const;
  /// Names of the output's tensors: keys and positions, joined by dots ("hidden.0"). The name of a
  /// single tensor is "output".
  std::vector<std::string> output_names() const;

  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;
  /// A copy that shares no tensor: a target network. Throws nothing of its own.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
  /// Writes the archive that this module was read from again, with the weights and buffers of now,
  /// in the dtypes that they were exported with: torch.export.load() reads it, and Python goes on
  /// training. `weights`: by name, in place of the module's own, such as Trainer::masters() of a
  /// model in 16 bits, or Trainer::averaged(). The file appears complete or not at all; `path` may
  /// be the archive itself. Call it on one rank. Throws Error (exit code data) if the archive is
  /// gone or another, or the file cannot be written, and Error for a name that the model does not
  /// have.
  void save(const std::string& path,
            const std::vector<std::pair<std::string, at::Tensor>>& weights = {}) const;
  void pretty_print(std::ostream& stream) const override;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())},
                           {2, torch::nn::AnyValue(at::Tensor())},
                           {3, torch::nn::AnyValue(at::Tensor())})

 private:
  explicit ExportedModuleImpl(std::unique_ptr<exported::Model> model);
  std::vector<c10::IValue> leaves(const std::vector<c10::IValue>& inputs);

  std::unique_ptr<exported::Model> model_;
};
TORCH_MODULE(ExportedModule);

}  // namespace lockstep
