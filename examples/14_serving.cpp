// Trains a model that Python exported, and serves what AOTInductor compiled of the trained model.
//
//   python3 14_serving_model.py export model.pt2
//   lockstep run -n 2 -- build/examples/14_serving train model.pt2 trained.pt2
//   python3 14_serving_model.py compile trained.pt2 served.pt2
//   build/examples/14_serving serve served.pt2
//
// The model learns sin(x) cos(y). The server reads a request, two numbers, from each line of its
// input and answers it with a line. It needs LibTorch alone: no Python, no MPI and no lockstep.

#include <ATen/ATen.h>
#include <lockstep/lockstep.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <sstream>

#include "command_line.h"

namespace {

struct Options {
  std::string model;
  std::string trained;
  std::string served;
  int steps = 400;
};

void train(lockstep::Runtime& runtime, const Options& options) {
  lockstep::ExportedModule model(options.model);
  lockstep::Trainer trainer(runtime, model, lockstep::AdamW(1e-2));
  at::manual_seed(runtime.rank());
  for (int step = 0; step < options.steps; ++step) {
    const at::Tensor points = trainer.to_device(at::rand({64, 2}) * 4 - 2);
    const at::Tensor values = (points.select(1, 0).sin() * points.select(1, 1).cos()).unsqueeze(1);
    const auto report = trainer.step([&] { return at::mse_loss(model->forward(points), values); });
    if (runtime.is_main() && (step + 1) % 100 == 0) {
      std::printf("step %d  loss %.6f\n", step + 1, report.loss());
    }
  }
  if (runtime.is_main()) {
    model->save(options.trained);
  }
}

int serve(const Options& options) {
  const c10::InferenceMode without_gradients;
  torch::inductor::AOTIModelPackageLoader model(options.served);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream numbers(line);
    at::Tensor point = at::zeros({1, 2});
    if (numbers >> point.mutable_data_ptr<float>()[0] >> point.mutable_data_ptr<float>()[1]) {
      std::printf("%.7g\n", model.run({point}).at(0).item<float>());
    } else {
      std::printf("a request is two numbers\n");
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a model that Python exported, or serves the trained and compiled one");
  CLI::App* training = app.add_subcommand("train", "Trains, and saves for Python");
  training->add_option("model", options.model, "Archive of torch.export")->required();
  training->add_option("trained", options.trained, "The same archive, trained")->required();
  training->add_option("--steps", options.steps, "Steps")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI::App* serving = app.add_subcommand("serve", "Answers each line of the input");
  serving->add_option("served", options.served, "Package of AOTInductor")->required();
  app.require_subcommand(1);
  if (const auto code = parse(app, argc, argv)) {
    return *code;
  }
  if (serving->parsed()) {
    return serve(options);
  }
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) { train(runtime, options); });
}
