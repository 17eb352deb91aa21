// Trains an exported model as scripts/corpus trained it in Python: training FOLDER/NAME
//
// Reads NAME.pt2, and NAME.safetensors with the inputs (input.0, ...), a target for each output
// that has gradients (target.0, ...), Python's losses, and the state after them (state.*). Prints
// "same", or what differs, or the error; exit code 1 for a difference.
#include <lockstep/checkpointing/snapshot/impl/safetensors_file.h>
#include <lockstep/inputs/exported_module.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/trainer.h>
#include <torch/optim/sgd.h>

#include <iostream>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using snapshot::SafetensorsFile;

std::vector<at::Tensor> tensors(const SafetensorsFile& file, const std::string& prefix, int count) {
  std::vector<at::Tensor> result(count);
  for (int i = 0; i < count; ++i) {
    const std::string name = prefix + std::to_string(i);
    if (file.find(name) != nullptr) {
      result[i] = file.tensor(name).clone();
    }
  }
  return result;
}

/// The sum of the mean squared distances of the outputs that have a target.
at::Tensor loss_of(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& targets) {
  at::Tensor loss;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (targets.at(i).defined()) {
      const at::Tensor part = at::mse_loss(outputs[i], targets[i]);
      loss = loss.defined() ? loss + part : part;
    }
  }
  return loss;
}

void compare(const ExportedModule& model, const SafetensorsFile& expected,
             std::vector<std::string>* wrong) {
  size_t found = 0;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    ++found;
    if (expected.find("state." + name) == nullptr) {
      wrong->push_back(name + " is unknown");
    } else if (!at::equal(tensor, expected.tensor("state." + name))) {
      wrong->push_back(name);
    }
  };
  for (const auto& entry : model->named_parameters()) {
    add(entry.key(), entry.value().detach());
  }
  for (const auto& entry : model->named_buffers()) {
    add(entry.key(), entry.value());
  }
  size_t stored = 0;
  for (const auto& entry : expected.header().tensors) {
    stored += entry.name.rfind("state.", 0) == 0 ? 1 : 0;
  }
  if (found != stored) {
    wrong->push_back(std::to_string(found) + " tensors for " + std::to_string(stored));
  }
}

int train(const std::string& path) {
  const SafetensorsFile expected(path + ".safetensors");
  ExportedModule model(path + ".pt2");
  const auto inputs = tensors(expected, "input.", static_cast<int>(model->input_names().size()));
  const auto targets = tensors(expected, "target.", static_cast<int>(model->output_names().size()));
  Runtime runtime = Runtime::solo(RuntimeOptions().threads(1).device(DeviceKind::cpu));
  Trainer trainer(runtime, model, TorchOptimizer([](std::vector<at::Tensor> weights) {
                    return std::make_unique<torch::optim::SGD>(std::move(weights), 0.01);
                  }),
                  TrainerOptions().unused(UnusedParameters::zeros));
  const at::Tensor losses = expected.tensor("losses");
  std::vector<std::string> wrong;
  at::manual_seed(1234);
  for (int64_t step = 0; step < losses.size(0); ++step) {
    at::Tensor loss;
    trainer.step([&] {
      loss = loss_of(model->outputs(inputs), targets);
      return loss;
    });
    if (!at::equal(loss.detach(), losses[step])) {
      wrong.push_back("loss " + std::to_string(step));
    }
  }
  compare(model, expected, &wrong);
  if (wrong.empty()) {
    std::cout << "same\n";
    return 0;
  }
  std::cout << wrong.size() << " differ:";
  for (size_t i = 0; i < wrong.size() && i < 3; ++i) {
    std::cout << " " << wrong[i];
  }
  std::cout << "\n";
  return 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "training FOLDER/NAME\n";
    return 2;
  }
  try {
    return lockstep::train(argv[1]);
  } catch (const std::exception& error) {
    std::cout << error.what() << "\n";
    return 10;
  }
}
