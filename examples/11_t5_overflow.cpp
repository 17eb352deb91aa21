// A block of T5 in fp16: its second product, wo, leaves the range of fp16, and the loss is NaN. The
// trainer names the layer, and keeping this layer in fp32, or bf16, cures it.
//
//   lockstep run -n 2 -- build/examples/11_t5_overflow [--steps 20]
//
// Expected: the diagnosis of the first attempt, and
//   precision             updates  skipped  loss
//   --------------------  -------  -------  ----
//   fp16                  0        ...      nan
//   fp16, wo kept fp32    20       0        ...
//   bf16                  20       0        ...

#include <lockstep/amp/optimizers.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/runtime/progress.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/table.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer_options.h>
#include <torch/nn.h>

#include <cmath>
#include <iostream>

#include "command_line.h"
#include "models/named_group.h"

namespace {

namespace nn = torch::nn;

constexpr int64_t kWidth = 32, kTokens = 20;

nn::Linear product(int64_t in, int64_t out) {
  return nn::Linear(nn::LinearOptions(in, out).bias(false));
}

/// Normalises by the root mean square.
struct T5LayerNormImpl : nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor wide = x.to(torch::kFloat);
    return weight * wide * torch::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + 1e-6);
  }
  torch::Tensor weight = register_parameter("weight", torch::ones({kWidth}));
};
TORCH_MODULE(T5LayerNorm);

/// A block of the encoder with Hugging Face's names, one head, and without position bias.
struct T5BlockImpl : nn::Module {
  T5BlockImpl() {
    nn::Module& layer = named_group(*this, "layer");
    nn::Module& first = named_group(layer, "0");
    nn::Module& attention = named_group(first, "SelfAttention");
    q = attention.register_module("q", product(kWidth, kWidth));
    k = attention.register_module("k", product(kWidth, kWidth));
    v = attention.register_module("v", product(kWidth, kWidth));
    o = attention.register_module("o", product(kWidth, kWidth));
    attention_norm = first.register_module("layer_norm", T5LayerNorm());
    nn::Module& second = named_group(layer, "1");
    nn::Module& dense = named_group(second, "DenseReluDense");
    wi = dense.register_module("wi", product(kWidth, 4 * kWidth));
    wo = dense.register_module("wo", product(4 * kWidth, kWidth));
    dense_norm = second.register_module("layer_norm", T5LayerNorm());
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor n = attention_norm(x);
    const torch::Tensor weights = torch::softmax(q(n).matmul(k(n).transpose(1, 2)), -1);
    const torch::Tensor attended = x + o(weights.matmul(v(n)));
    return attended + wo(torch::relu(wi(dense_norm(attended))));
  }
  nn::Linear q{nullptr}, k{nullptr}, v{nullptr}, o{nullptr}, wi{nullptr}, wo{nullptr};
  T5LayerNorm attention_norm{nullptr}, dense_norm{nullptr};
};
TORCH_MODULE(T5Block);

struct ClassifierImpl : nn::Module {
  ClassifierImpl() {
    // Pre-trained weights of T5 have such values: they were trained in bf16, which has fp32's
    // range.
    const torch::NoGradGuard no_grad;
    block->wo->weight.mul_(5e5);
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    return head(final_norm(block(words(tokens))).mean(1));
  }
  nn::Embedding words = register_module("shared", nn::Embedding(kTokens, kWidth));
  T5Block block = register_module("block", T5Block());
  T5LayerNorm final_norm = register_module("final_layer_norm", T5LayerNorm());
  nn::Linear head = register_module("head", nn::Linear(kWidth, 4));
};
TORCH_MODULE(Classifier);

void attempt(lockstep::Runtime& runtime, const lockstep::Precision& precision,
             const std::string& name, int64_t steps, lockstep::Table& table) {
  torch::manual_seed(1);
  Classifier model;
  const torch::Tensor tokens = torch::randint(kTokens, {32, 8}, torch::kLong).to(runtime.device());
  const torch::Tensor labels = tokens.select(1, 0).remainder(4);
  lockstep::Trainer trainer(
      runtime, model, lockstep::AdamW(1e-2),
      lockstep::TrainerOptions().precision(precision).diagnose_after_skips(2));
  double loss = std::nan("");
  try {
    for (int64_t step = 0; step < steps && trainer.diagnosis().empty(); ++step) {
      const auto report = trainer.step(
          [&] { return nn::functional::cross_entropy(model->forward(tokens), labels); });
      loss = report.loss();
    }
  } catch (const lockstep::Error& error) {  // on every rank
    if (error.code() != lockstep::ExitCode::non_finite) {
      throw;
    }
  }
  table.row({name, std::to_string(trainer.updates()),
             std::to_string(trainer.scaler_state().skipped), lockstep::format_number(loss)});
  if (runtime.is_main() && !trainer.diagnosis().empty()) {
    std::cout << name << ": " << trainer.diagnosis() << "\n\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  int64_t steps = 20;
  CLI::App app("Trains a block of T5 that overflows in fp16.");
  app.add_option("--steps", steps)->check(CLI::PositiveNumber)->capture_default_str();
  if (const auto code = parse(app, argc, argv)) {
    return *code;
  }
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) {
    lockstep::Table table({"precision", "updates", "skipped", "loss"});
    const auto fp16 = lockstep::Precision::O1(torch::kHalf);
    attempt(runtime, fp16, "fp16", steps, table);
    attempt(runtime, fp16.keep_fp32("wo"), "fp16, wo kept fp32", steps, table);
    attempt(runtime, lockstep::Precision::O1(torch::kBFloat16), "bf16", steps, table);
    if (runtime.is_main()) {
      std::cout << table.text() << std::flush;
    }
  });
}
