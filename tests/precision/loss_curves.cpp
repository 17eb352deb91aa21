// The loss of a tiny byte-level GPT at three precisions, from the same weights and batches, as CSV:
//   loss_curves STEPS
// One line a step. Half matrix products are slow on CPUs, so the model is tiny: two layers of
// width 32 on 32 bytes of context, about 50 thousand parameters.

#include <lockstep/collectives/check.h>
#include <lockstep/runtime/trainer.h>

#include <cstdlib>
#include <iostream>

#include "../../examples/byte_gpt.h"

namespace {

constexpr int64_t batch_size = 16;

GptSize tiny() {
  GptSize size;
  size.layers = 2;
  size.width = 32;
  size.heads = 2;
  size.context = 32;
  return size;
}

/// "17+25=42;" and so on: 90 thousand bytes.
torch::Tensor text() {
  std::vector<uint8_t> bytes;
  for (int a = 0; a < 100; ++a) {
    for (int b = 0; b < 100; ++b) {
      for (const char c :
           std::to_string(a) + "+" + std::to_string(b) + "=" + std::to_string(a + b) + ";") {
        bytes.push_back(static_cast<uint8_t>(c));
      }
    }
  }
  return torch::tensor(bytes, torch::kLong);
}

std::vector<double> losses(lockstep::Runtime& runtime, const lockstep::Precision& precision,
                           int64_t steps) {
  torch::manual_seed(7);
  const GptSize size = tiny();
  ByteGpt model(size);
  lockstep::Trainer trainer(
      runtime, model, lockstep::AdamW(3e-3).no_decay_on_norms_and_biases(),
      lockstep::TrainerOptions().precision(precision).clip_grad_norm(1.0).schedule(
          lockstep::WarmupCosine(30, 300)));
  const torch::Tensor bytes = text();
  torch::manual_seed(8);
  std::vector<double> result;
  for (int64_t step = 0; step < steps; ++step) {
    const torch::Tensor starts =
        torch::randint(bytes.numel() - size.context - 1, {batch_size, 1}, torch::kLong);
    const torch::Tensor batch = bytes.index({starts + torch::arange(size.context + 1)});
    const auto report = trainer.step([&] {
      const torch::Tensor scores = model->forward(batch.narrow(1, 0, size.context));
      return torch::nn::functional::cross_entropy(scores.flatten(0, 1).to(torch::kFloat),
                                                  batch.narrow(1, 1, size.context).flatten());
    });
    LOCKSTEP_CHECK(!report.skipped(), precision.describe(), ": step ", step, " was skipped");
    result.push_back(report.loss());
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 300;
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) {
    using lockstep::Precision;
    const auto scale = lockstep::amp::LossScalerOptions().init_scale(1024);
    const auto fp32 = losses(runtime, Precision::O0(), steps);
    const auto bf16 = losses(runtime, Precision::O1(torch::kBFloat16), steps);
    const auto fp16 = losses(runtime, Precision::O2(torch::kHalf).loss_scale(scale), steps);
    std::cout << "step,O0,O1 bf16,O2 fp16\n";
    for (size_t i = 0; i < fp32.size(); ++i) {
      std::cout << i << "," << fp32[i] << "," << bf16[i] << "," << fp16[i] << "\n";
    }
  });
}
