// The first non-finite value of a forward and backward, named.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/amp/autocast.h>
#include <lockstep/amp/fused_layers.h>
#include <lockstep/amp/impl/kept_fp32.h>
#include <lockstep/amp/non_finite_tracer.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>
#include <limits>

#include "test_device.h"
#include "test_names.h"

namespace lockstep {
namespace {

using amp::Autocast;
using amp::NonFinite;
using amp::NonFiniteTracer;
using amp::summarise;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Network : torch::nn::Module {
  Network()
      : wi(register_module("wi", torch::nn::Linear(4, 8))),
        wo(register_module("wo", torch::nn::Linear(8, 4))) {
    to(device());
  }
  at::Tensor forward(const at::Tensor& x) { return wo->forward(at::relu(wi->forward(x))); }
  torch::nn::Linear wi, wo;
};

template <typename Loss>
std::optional<NonFinite> trace(Network& model, const Loss& loss_of, float scale = 1.0F) {
  NonFiniteTracer tracer{Model(model)};
  const at::Tensor loss = loss_of();
  const at::Tensor scaled = loss * scale;
  tracer.begin_backward();
  torch::autograd::grad({scaled}, model.parameters(), {}, false, false, /*allow_unused=*/true);
  return tracer.first();
}

TEST(ValueSummary, CountsEveryKindOfValueInEveryDtype) {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    auto values = zeros({3000}, dtype);
    values[1] = kInfinity;
    values[1500] = -kInfinity;
    values[2999] = std::nan("");
    values[7] = -512.0;
    values[8] = 3e-5;
    const auto summary = summarise(values.view({30, 100}).t());
    EXPECT_EQ(summary.numel, 3000);
    EXPECT_EQ(summary.infs, 2);
    EXPECT_EQ(summary.nans, 1);
    EXPECT_EQ(summary.zeros, 2995);
    EXPECT_EQ(summary.tiny, 1);
    EXPECT_EQ(summary.absmax, 512.0);
    EXPECT_FALSE(summary.finite());
  }
  EXPECT_NEAR(summarise(full({2}, 16376.0)).headroom_bits(at::kHalf), 2.0, 1e-9);
  EXPECT_ANY_THROW(summarise(zeros({2}, at::kLong)));
  const auto tiny = summarise(full({1000}, 3.0).to(at::kFloat8_e4m3fn));
  EXPECT_EQ(tiny.numel, 1000);
  EXPECT_EQ(tiny.absmax, 3.0);
  EXPECT_TRUE(tiny.finite());
}

TEST(NonFiniteTracer, FindsNothingInACleanStep) {
  Network model;
  EXPECT_FALSE(trace(model, [&] { return model.forward(randn({3, 4})).square().mean(); }));
}

TEST(NonFiniteTracer, NamesTheModuleAndOperatorOfAForwardOverflow) {
  Network model;
  model.wi->weight.data().fill_(0.5);
  model.wo->weight.data().fill_(3e4);
  const auto found = trace(model, [&] {
    const Autocast region(device().type(), at::kHalf);
    return model.forward(full({3, 4}, 10.0)).to(at::kFloat).mean() +
           model.wi->weight.square().sum() * 4.0;
  });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->origin, NonFinite::Origin::op);
  EXPECT_EQ(found->first.module, "wo");
  EXPECT_EQ(found->first.parameter.substr(0, 3), "wo.");
  EXPECT_EQ(found->first.name, "aten::addmm");
  EXPECT_FALSE(found->first.backward);
  EXPECT_EQ(found->first.dtype, at::kHalf);
  EXPECT_EQ(found->first.sizes, (std::vector<int64_t>{3, 4}));
  EXPECT_GT(found->first.values.infs, 0);
  EXPECT_NEAR(found->largest_input.absmax, 3e4, 16);
  EXPECT_FALSE(found->before.empty());
  EXPECT_THAT(found->describe(), HasSubstr("forward aten::addmm of wo (reads wo."));
}

TEST(NonFiniteTracer, NamesTheModuleOfABackwardOverflow) {
  Network model;
  const auto found = trace(
      model,
      [&] {
        const Autocast region(device().type(), at::kHalf);
        return model.forward(randn({3, 4})).to(at::kFloat).sum();
      },
      1e8F);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->first.backward);
  EXPECT_EQ(found->origin, NonFinite::Origin::op);
  EXPECT_EQ(found->first.dtype, at::kHalf);
  EXPECT_EQ(found->first.module, "wo");
}

TEST(NonFiniteTracer, TellsBatchAndParameterFromOperators) {
  Network model;
  auto batch = ones({3, 4});
  batch[1][2] = std::nanf("");
  const auto loss = [&] { return model.forward(batch).square().mean(); };
  auto found = trace(model, loss);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->origin, NonFinite::Origin::input);
  EXPECT_THAT(found->describe(), HasSubstr("came from outside (the batch"));

  batch.fill_(1.0);
  model.wo->weight.data()[0][0] = kInfinity;
  found = trace(model, loss);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->origin, NonFinite::Origin::parameter);
  EXPECT_EQ(found->first.parameter, "wo.weight");
}

TEST(NonFiniteTracer, AWeightThatIsTooLargeForHalfIsFoundInItsCast) {
  Network model;
  model.wo->weight.data()[0][0] = 1e5;
  const auto found = trace(model, [&] {
    const Autocast region(device().type(), at::kHalf);
    return model.forward(ones({3, 4})).to(at::kFloat).mean();
  });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->origin, NonFinite::Origin::op);
  EXPECT_EQ(found->first.name, "aten::_to_copy");
  EXPECT_EQ(found->first.parameter, "wo.weight");
}

TEST(NonFiniteTracer, AMaskOfMinusInfinityIsNoFind) {
  Network model;
  const auto mask = zeros({4, 4}).masked_fill(ones({4, 4}, at::kBool).triu(1), -kInfinity);
  const auto masked = [&](const at::Tensor& m) {
    return at::softmax(model.forward(ones({4, 4})) + m, -1).square().sum();
  };
  EXPECT_FALSE(trace(model, [&] { return masked(mask); }));
  EXPECT_FALSE(trace(model, [&] {
    return masked(zeros({4, 4}).masked_fill(ones({4, 4}, at::kBool).triu(1), -kInfinity));
  }));
  const auto found = trace(model, [&] { return masked(full({4, 4}, -kInfinity)); });
  ASSERT_TRUE(found) << "a row that is masked throughout is NaN";
  EXPECT_THAT(found->first.name, HasSubstr("softmax"));
}

TEST(NonFiniteTracer, SeesFusedLayersToo) {
  Network model;
  model.wo->bias.data().fill_(2e4);
  const auto found = trace(model, [&] {
    return fused_bias_gelu(full({3, 4}, 6e4, at::kHalf), model.wo->bias).to(at::kFloat).mean();
  });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first.name, "lockstep::fused_bias_gelu");
  EXPECT_EQ(found->first.parameter, "wo.bias");
}

TEST(NonFiniteTracer, CollectsTheBatch) {
  Network model;
  const auto batch = ones({3, 4});
  const auto target = zeros({3, 4});
  NonFiniteTracer tracer{Model(model)};
  (model.forward(batch) - target).square().mean();
  ASSERT_EQ(tracer.inputs().size(), 2U);
  EXPECT_TRUE(tracer.inputs()[0].is_same(batch));
  EXPECT_TRUE(tracer.inputs()[1].is_same(target));
}

TEST(NonFiniteTracer, LeavesNothingBehind) {
  Network model;
  { const NonFiniteTracer tracer{Model(model)}; }
  EXPECT_FALSE(at::hasThreadLocalCallbacks());
}

TEST(KeptFp32, AKeptLayerComputesInFp32UnderAutocast) {
  Network model;
  amp::compute_in_fp32(model.wo->weight);
  EXPECT_TRUE(amp::computes_in_fp32(model.wo->weight));
  EXPECT_FALSE(amp::computes_in_fp32(model.wi->weight));
  for (const auto& sizes : {std::vector<int64_t>{3, 4}, std::vector<int64_t>{2, 3, 4}}) {
    const auto x = randn(sizes);
    const Autocast region(device().type(), at::kHalf);
    const auto hidden = model.wi->forward(x);
    EXPECT_EQ(hidden.scalar_type(), at::kHalf);
    const auto out = model.wo->forward(hidden);
    EXPECT_EQ(out.scalar_type(), at::kFloat);
    const Autocast off(device().type(), at::kHalf, /*enabled=*/false);
    EXPECT_TRUE(at::equal(out, model.wo->forward(hidden.to(at::kFloat))));
  }
}

TEST(KeptFp32, IsNothingOutsideAutocastAndGoesWithOtherData) {
  Network model;
  const auto x = randn({3, 4});
  const auto plain = model.forward(x);
  amp::compute_in_fp32(model.wo->weight);
  EXPECT_TRUE(at::equal(model.forward(x), plain));
  model.forward(x).sum().backward();
  EXPECT_EQ(model.wo->weight.grad().scalar_type(), at::kFloat);
  model.wo->weight.set_data(zeros({4, 8}));
  EXPECT_FALSE(amp::computes_in_fp32(model.wo->weight));
}

}  // namespace
}  // namespace lockstep
