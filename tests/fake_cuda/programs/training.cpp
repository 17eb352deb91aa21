// Trains a little model for seven steps on the device and prints each loss, and of each rank a
// digest of its masters: the same for each order of the device's work, direct or captured, for each
// transport. A rank whose device fails meanwhile must end with exit code 20 (or 23: no memory) and
// CUDA's words, never by a signal; its peers must end soon and say which rank.
//   training direct|captured O0|O1|O2 [wide]
// O0 has an fp16 wire. wide: activations take most of what a small device has.
#include <lockstep/lockstep.h>
#include <torch/nn.h>
#include <torch/nn/functional.h>

#include <cinttypes>
#include <cstdio>
#include <string>

namespace {

using lockstep::Precision;

bool captured = false;
bool wide = false;
Precision precision = Precision::O0().wire(at::kHalf);

struct Samples {
  int64_t size() const { return 256; }
  std::pair<at::Tensor, at::Tensor> get(size_t index) const {
    const auto at = static_cast<int64_t>(index);
    return {at::arange(20).add(at).remainder(7).to(at::kFloat).div(7.0),
            at::scalar_tensor(at % 10, at::kLong)};
  }
};

/// FNV-1a (Fowler, Noll and Vo) of the bits.
uint64_t digest(const at::Tensor& values) {
  const at::Tensor here = values.cpu().contiguous();
  const auto* bytes = static_cast<const unsigned char*>(here.const_data_ptr());
  uint64_t sum = 14695981039346656037ULL;
  for (size_t i = 0; i < here.nbytes(); ++i) {
    sum = (sum ^ bytes[i]) * 1099511628211ULL;
  }
  return sum;
}

void train(lockstep::Runtime& runtime) {
  torch::manual_seed(5);
  const int64_t width = wide ? 256 : 64;
  torch::nn::Sequential model(torch::nn::Linear(20, width), torch::nn::GELU(),
                              torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})),
                              torch::nn::Linear(width, width), torch::nn::ReLU(),
                              torch::nn::Linear(width, 10));
  lockstep::Trainer trainer(
      runtime, model, lockstep::AdamW(1e-2),
      lockstep::TrainerOptions().precision(precision).ema(0.9).compare_replicas_every(2).cuda_graph(
          captured));
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
      std::printf("step %" PRId64 " loss %.9g\n", step, report.loss());
    }
    if (++step == 7) {
      break;
    }
  }
  std::string sums;
  for (const auto& parameter : model->named_parameters()) {
    char text[32];
    std::snprintf(text, sizeof text, " %016" PRIx64, digest(parameter.value()));
    sums += text;
  }
  std::printf("rank %d digests%s\n", runtime.rank(), sums.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string level = argc > 2 ? argv[2] : "O0";
  captured = argc > 1 && std::string(argv[1]) == "captured";
  wide = argc > 3 && std::string(argv[3]) == "wide";
  if (level != "O0") {
    precision = level == "O1" ? Precision::O1() : Precision::O2();
  }
  return lockstep::run(argc, argv, train);
}
