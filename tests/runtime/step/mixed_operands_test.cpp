// fp32 and 16-bit operands in one operator: weights that Precision::keep_fp32 keeps, and what they
// compute.
#include <ATen/ATen.h>
#include <lockstep/amp/autocast.h>
#include <torch/nn/modules/adaptive.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>

#include "error_of.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

struct Kept : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(8, 8));
  torch::nn::Linear kept = register_module("kept", torch::nn::Linear(8, 8));
  torch::nn::Bilinear pairs = register_module("kept_pairs", torch::nn::Bilinear(8, 8, 4));
  torch::nn::AdaptiveLogSoftmaxWithLoss classes = register_module(
      "kept_classes",
      torch::nn::AdaptiveLogSoftmaxWithLoss(
          torch::nn::AdaptiveLogSoftmaxWithLossOptions(8, 20, {5, 10}).div_value(2.0)));
  Kept() { to(device()); }
};

using Use = std::function<at::Tensor(Kept&, const at::Tensor&)>;

std::vector<std::pair<const char*, Use>> uses() {
  const at::Tensor rows = at::arange(8).to(device());
  const at::Tensor index = at::arange(96).remainder(8).reshape({12, 8}).to(device());
  return {
      {"Bilinear", [](Kept& m, const at::Tensor& h) { return m.pairs->forward(h, h); }},
      {"AdaptiveLogSoftmaxWithLoss",
       [](Kept& m, const at::Tensor& h) {
         return m.classes->forward(h, at::arange(12).to(device())).output;
       }},
      {"tensordot",
       [](Kept& m, const at::Tensor& h) { return at::tensordot(h, m.kept->weight, {1}, {1}); }},
      {"inner", [](Kept& m, const at::Tensor& h) { return at::inner(h, m.kept->weight); }},
      {"dot", [](Kept& m, const at::Tensor& h) { return at::dot(h[0], m.kept->bias); }},
      {"vdot", [](Kept& m, const at::Tensor& h) { return at::vdot(m.kept->bias, h[0]); }},
      {"lerp",
       [](Kept& m, const at::Tensor& h) {
         return at::lerp(h.narrow(0, 0, 8), m.kept->weight, 0.5);
       }},
      {"lerp by a weight",
       [](Kept& m, const at::Tensor& h) { return at::lerp(h, h * 2, m.kept->bias); }},
      {"index_put",
       [=](Kept& m, const at::Tensor& h) { return at::index_put(h, {rows}, m.kept->weight); }},
      {"index_put_ of an activation",
       [=](Kept& m, const at::Tensor& h) {
         return h.clone().index_put_({rows}, m.kept->forward(h.narrow(0, 0, 8)));
       }},
      {"index_copy_",
       [=](Kept& m, const at::Tensor& h) {
         return h.clone().index_copy_(0, rows, m.kept->weight);
       }},
      {"index_add",
       [=](Kept& m, const at::Tensor& h) { return at::index_add(h, 0, rows, m.kept->weight); }},
      {"scatter_add",
       [=](Kept& m, const at::Tensor& h) { return at::scatter_add(m.kept->weight, 0, index, h); }},
      {"scatter",
       [=](Kept& m, const at::Tensor& h) {
         return at::scatter(h, 0, index.narrow(0, 0, 8), m.kept->weight);
       }},
      {"masked_scatter",
       [=](Kept& m, const at::Tensor& h) {
         return at::masked_scatter(h, (index == 3).to(at::kBool), m.kept->weight);
       }},
      {"addmm_", [](Kept& m, const at::Tensor& h) { return h.clone().addmm_(h, m.kept->weight); }},
      {"linalg_cross",
       [](Kept& m, const at::Tensor& h) {
         return at::linalg_cross(h.narrow(1, 0, 3), m.kept->bias.narrow(0, 0, 3).expand({12, 3}));
       }},
      {"layer_norm of a kept weight and a half bias",
       [](Kept& m, const at::Tensor& h) {
         return at::layer_norm(h, {8}, m.kept->bias, m.first->bias);
       }},
  };
}

double loss_after_three_steps(const Use& use, const Precision& precision) {
  const auto model = std::make_shared<Kept>();
  const at::NoGradGuard no_grad;
  uint64_t seed = 1;
  for (const at::Tensor& parameter : model->parameters()) {
    parameter.copy_(drawn(parameter.sizes(), seed++) * 0.3);
  }
  const at::AutoGradMode grad(true);
  Trainer trainer(runtime(), model, SGD(0.05),
                  TrainerOptions().precision(precision).unused(UnusedParameters::detect));
  double loss = 0;
  for (int step = 0; step < 3; ++step) {
    loss = trainer
               .step([&] {
                 const at::Tensor h = model->first->forward(drawn({12, 8}, 77).to(device()));
                 return use(*model, h).to(at::kFloat).square().mean();
               })
               .loss();
  }
  return loss;
}

TEST(MixedOperands, TrainAtEveryPrecisionWithAndWithoutKeptWeights) {
  for (const auto& [name, use] : uses()) {
    const double expected = loss_after_three_steps(use, Precision::O0());
    for (const Precision& precision : {Precision::O1(at::kBFloat16), Precision::O2(at::kBFloat16),
                                       Precision::O2(at::kBFloat16)
                                           .keep_fp32("kept")
                                           .keep_fp32("kept_pairs")
                                           .keep_fp32("kept_classes"),
                                       Precision::O3(at::kBFloat16)
                                           .keep_fp32("kept")
                                           .keep_fp32("kept_pairs")
                                           .keep_fp32("kept_classes")}) {
      SCOPED_TRACE(c10::str(name, " at ", precision.describe()));
      try {
        EXPECT_NEAR(loss_after_three_steps(use, precision), expected,
                    0.05 * std::abs(expected) + 0.02);
      } catch (const std::exception& error) {
        ADD_FAILURE() << std::string(error.what()).substr(0, 300);
      }
    }
  }
}

struct Encoded : torch::nn::Module {
  torch::nn::TransformerEncoder encoder = register_module(
      "encoder", torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(
                     torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16), 1)));
  Encoded() { to(device()); }
  at::Tensor loss() {
    const at::Tensor padded = at::zeros({2, 5}, at::kBool);
    padded[0][4] = true;
    return encoder->forward(drawn({5, 2, 8}, 3).to(device()), at::Tensor(), padded.to(device()))
        .to(at::kFloat)
        .mean();
  }
};

TEST(MixedOperands, AnOperatorWithoutAHalfKernelIsExplainedWithACureThatTrains) {
  for (const Precision& precision :
       {Precision::O1(at::kBFloat16), Precision::O2(at::kBFloat16).keep_fp32("encoder"),
        Precision::O3(at::kBFloat16).keep_fp32("encoder")}) {
    SCOPED_TRACE(precision.describe());
    const auto model = std::make_shared<Encoded>();
    Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().precision(precision));
    EXPECT_THAT(testing::error_of([&] { trainer.step([&] { return model->loss(); }); }),
                AllOf(HasSubstr("not implemented for 'BFloat16'"), HasSubstr("in fp32"),
                      HasSubstr("keep_fp32"), HasSubstr("scaled_dot_product_attention")));
    trainer.abandon();
    trainer.step([&] {
      const amp::Autocast off(device().type(), at::kBFloat16, /*enabled=*/false);
      return model->loss();
    });
    EXPECT_EQ(trainer.updates(), 1);
  }
}

}  // namespace
}  // namespace lockstep
