// A first program with lockstep: replace the data and the model by your own.
//
//   cmake -B build && cmake --build build
//   lockstep run -n 2 -- build/train

#include <lockstep/lockstep.h>
#include <torch/nn.h>
#include <torch/nn/functional.h>

#include <cstdio>

namespace {

/// A grid of 64 x 64 points in the plane; the class says whether a point lies inside the unit
/// circle.
struct Points {
  at::Tensor axis = at::linspace(-1.5, 1.5, 64);
  at::Tensor points = at::cartesian_prod({axis, axis});
  at::Tensor classes = points.square().sum(1).lt(1).to(at::kLong);

  size_t size() const { return 4096; }
  std::pair<at::Tensor, at::Tensor> get(size_t index) const {
    return {points[static_cast<int64_t>(index)], classes[static_cast<int64_t>(index)]};
  }
};

void train(lockstep::Runtime& runtime) {
  torch::nn::Sequential model(torch::nn::Linear(2, 64), torch::nn::ReLU(),
                              torch::nn::Linear(64, 2));
  lockstep::Trainer trainer(
      runtime, model, lockstep::AdamW(3e-3),
      lockstep::TrainerOptions().precision(lockstep::Precision::O0().wire(torch::kHalf)));
  auto loader =
      runtime.loader(Points(), lockstep::LoaderOptions().batch_size(32).shuffle(true).epochs(50));
  trainer.resume("runs/template");  // goes on after a kill
  trainer.stop_on_signals();        // Ctrl-C saves and leaves, a second one just leaves
  for (auto& batch : loader) {
    const lockstep::StepReport report = trainer.step([&] {
      const auto [points, classes] = trainer.to_device(batch);
      return torch::nn::functional::cross_entropy(model->forward(points), classes);
    });
    if (runtime.is_main() && report.update() % 100 == 0) {
      std::printf("update %lld  loss %.4f\n", static_cast<long long>(report.update()),
                  report.loss());
    }
    if (trainer.stop_requested()) {
      trainer.save_and_leave();
    }
  }
  trainer.save();
  const auto loader_of_all =
      runtime.validation_loader(Points(), lockstep::LoaderOptions().batch_size(256));
  const auto found = lockstep::evaluate(trainer, model, loader_of_all, lockstep::Accuracy());
  if (runtime.is_main()) {
    std::printf("%s\n", found.text().c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run(argc, argv, train);
}
