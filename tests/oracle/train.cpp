// train FOLDER OPTIMIZER STEPS: trains the TorchScript model that Python left in FOLDER with
// lockstep::Trainer, on this rank's share of Python's data, and leaves losses and weights there.
#include <ATen/ATen.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/trainer.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace {

using lockstep::Runtime;

/// The file's elements as they lie in memory.
at::Tensor read(const std::string& path, int64_t numel, at::ScalarType dtype) {
  return at::from_file(path, /*shared=*/false, numel, dtype).clone();
}

void write(const std::string& path, const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().flatten();
  at::from_file(path, /*shared=*/true, flat.numel(), flat.scalar_type()).copy_(flat);
}

/// Hyper-parameters as in oracle.py.
std::unique_ptr<lockstep::OptimizerSpec> make_optimizer(const std::string& name) {
  if (name == "adamw") {
    return std::make_unique<lockstep::AdamW>(lockstep::AdamW(1e-3).weight_decay(0.1));
  }
  if (name == "adam") {
    return std::make_unique<lockstep::Adam>(lockstep::Adam(1e-3).weight_decay(0.01));
  }
  LOCKSTEP_CHECK(name == "sgd", "no optimizer is named ", name, "; there are adamw, adam, sgd");
  return std::make_unique<lockstep::SGD>(
      lockstep::SGD(0.05).momentum(0.9).nesterov(true).weight_decay(0.01));
}

/// Python's data: steps x ranks x batch; "shape" holds the sizes, and whether inputs are tokens.
struct Data {
  at::Tensor inputs;
  at::Tensor targets;

  explicit Data(const std::string& folder) {
    const at::Tensor header = read(folder + "/header", 5, at::kLong);
    const auto* size = header.data_ptr<int64_t>();
    const std::vector<int64_t> batches = {size[0], size[1], size[2]};
    const std::vector<int64_t> shape = {size[0], size[1], size[2], size[3]};
    const bool tokens = size[4] == 1;
    const int64_t samples = size[0] * size[1] * size[2];
    inputs =
        read(folder + "/inputs", samples * size[3], tokens ? at::kLong : at::kFloat).view(shape);
    targets = read(folder + "/targets", tokens ? samples * size[3] : samples, at::kLong)
                  .view(tokens ? shape : batches);
  }
};

void train(Runtime& runtime, const std::string& folder, const std::string& optimizer,
           int64_t steps) {
  torch::jit::setGraphExecutorOptimize(false);  // the operators that eager Python runs
  torch::jit::Module model = torch::jit::load(folder + "/model.pt");
  const Data data(folder);
  LOCKSTEP_CHECK(data.inputs.size(0) == steps && data.inputs.size(1) == runtime.size(),
                 "the data is for ", data.inputs.size(0), " steps of ", data.inputs.size(1),
                 " ranks, not ", steps, " of ", runtime.size());
  lockstep::Trainer trainer(runtime, model, *make_optimizer(optimizer));
  const at::Tensor losses = at::empty({steps}, at::kDouble);
  for (int64_t step = 0; step < steps; ++step) {
    const at::Tensor inputs = data.inputs[step][runtime.rank()];
    const at::Tensor targets = data.targets[step][runtime.rank()].flatten();
    const auto report = trainer.step([&] {
      return at::cross_entropy_loss(model.forward({inputs}).toTensor().flatten(0, -2), targets);
    });
    losses[step] = report.loss();
  }
  write(folder + "/losses." + std::to_string(runtime.rank()), losses);
  std::vector<at::Tensor> weights;
  for (const at::Tensor& parameter : model.parameters()) {
    weights.push_back(parameter.detach().flatten());
  }
  write(folder + "/weights." + std::to_string(runtime.rank()), at::cat(weights));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: " << argv[0] << " FOLDER OPTIMIZER STEPS\n";
    return 2;
  }
  return lockstep::run(
      argc, argv, [&](Runtime& runtime) { train(runtime, argv[1], argv[2], std::stoll(argv[3])); });
}
