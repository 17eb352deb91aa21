// Trains a little on the device, while one fault is planted there. The rank whose device failed
// must end with exit code 20 (or 23: no memory) and CUDA's words, never by a signal; its peers must
// end soon and say which rank.
//   device_fault direct|captured [wide]
// wide: activations take most of what a small device has.
#include <lockstep/lockstep.h>
#include <torch/nn.h>
#include <torch/nn/functional.h>

#include <cstdio>
#include <string>

namespace {

bool captured = false;
bool wide = false;

struct Samples {
  int64_t size() const { return 256; }
  std::pair<at::Tensor, at::Tensor> get(size_t index) const {
    const auto at = static_cast<int64_t>(index);
    return {at::arange(20).add(at).remainder(7).to(at::kFloat).div(7.0),
            at::scalar_tensor(at % 10, at::kLong)};
  }
};

void train(lockstep::Runtime& runtime) {
  torch::manual_seed(5);
  const int64_t width = wide ? 256 : 64;
  torch::nn::Sequential model(torch::nn::Linear(20, width), torch::nn::GELU(),
                              torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})),
                              torch::nn::Linear(width, width), torch::nn::ReLU(),
                              torch::nn::Linear(width, 10));
  lockstep::Trainer trainer(runtime, model, lockstep::AdamW(1e-2),
                            lockstep::TrainerOptions()
                                .precision(lockstep::Precision::O0().wire(at::kHalf))
                                .compare_replicas_every(2)
                                .cuda_graph(captured));
  auto loader = runtime.loader(
      Samples(), lockstep::LoaderOptions().batch_size(wide ? 128 : 16).prefetch(2).epochs(8));
  int64_t step = 0;
  for (auto& [points, classes] : loader) {
    trainer.set_learning_rate(1e-2 / static_cast<double>(step + 1));
    const auto report =
        trainer.step({points, classes}, [&](const std::vector<at::Tensor>& in) -> lockstep::Loss {
          return torch::nn::functional::cross_entropy(model->forward(in[0]), in[1]);
        });
    if (runtime.is_main()) {
      std::printf("step %ld loss %.9g\n", static_cast<long>(step), report.loss());
    }
    if (++step == 7) {
      break;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  captured = argc > 1 && std::string(argv[1]) == "captured";
  wide = argc > 2 && std::string(argv[2]) == "wide";
  return lockstep::run(argc, argv, train);
}
