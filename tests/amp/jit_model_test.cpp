#include "spans.h"

#include <lockstep/amp/model.h>
#include <lockstep/amp/precision.h>
#include <torch/csrc/jit/api/module.h>

namespace lockstep {
namespace {

torch::jit::Module linear_module() {
  torch::jit::Module module("__torch__.Net");
  module.register_parameter("weight", at::ones({2, 3}), /*is_buffer=*/false);
  module.register_buffer("steps", at::arange(2047, 2052));
  torch::jit::Module norm("__torch__.torch.nn.modules.batchnorm.BatchNorm2d");
  norm.register_parameter("weight", at::ones({2}), /*is_buffer=*/false);
  norm.register_buffer("running_mean", at::zeros({2}));
  module.register_module("bn", norm);
  module.define("def forward(self, x):\n  return x.matmul(self.weight.t())\n");
  return module;
}

TEST(ModelOfJit, NamesTensorsAsPythonDoes) {
  const Model model(linear_module());
  ASSERT_EQ(model.parameters().size(), 2U);
  EXPECT_EQ(model.parameters()[0].name, "weight");
  EXPECT_EQ(model.parameters()[1].name, "bn.weight");
  ASSERT_EQ(model.buffers().size(), 2U);
  EXPECT_EQ(model.buffers()[0].name, "steps");
  EXPECT_EQ(model.buffers()[1].name, "bn.running_mean");
}

TEST(ModelOfJit, KnowsNormsByTypeName) {
  const Model model(linear_module());
  EXPECT_FALSE(model.parameters()[0].in_norm);
  EXPECT_TRUE(model.parameters()[1].in_norm);
  EXPECT_FALSE(model.buffers()[0].in_norm);
  EXPECT_TRUE(model.buffers()[1].in_norm);
  EXPECT_EQ(Precision::O2().storage_dtype(model.parameters()[0]), at::kHalf);
  EXPECT_EQ(Precision::O2().storage_dtype(model.parameters()[1]), at::kFloat);
  EXPECT_EQ(Precision::O2().buffer_dtype(model.buffers()[0]), at::kLong);
}

TEST(ModelOfJit, SharesTheTensorsThatForwardUses) {
  auto module = linear_module();
  const Model model(module);
  model.parameters()[0].tensor.data().fill_(2.0);
  const auto out = module.forward({at::ones({1, 3})}).toTensor();
  EXPECT_TRUE(at::equal(out, at::full({1, 2}, 6.0)));
}

TEST(ModelOfJit, KeepsTheModuleAlive) {
  auto model = std::make_unique<Model>(linear_module());
  EXPECT_TRUE(at::equal(model->parameters()[1].tensor, at::ones({2})));
}

TEST(ModelOfJit, TiedTensorsAppearOnce) {
  auto module = linear_module();
  module.register_parameter("head", module.attr("weight").toTensor(), /*is_buffer=*/false);
  const Model model(module);
  EXPECT_EQ(model.parameters().size(), 2U);
  EXPECT_THAT(model.parameters()[0].aliases, ::testing::ElementsAre("head"));
}

TEST(ModelOfJit, OverlappingTensorsAreRefusedByName) {
  torch::jit::Module module("__torch__.Net");
  const auto all = at::zeros({10});
  module.register_parameter("first", all.slice(0, 0, 6), /*is_buffer=*/false);
  module.register_parameter("second", all.slice(0, 5, 10), /*is_buffer=*/false);
  testing::expect_error([&] { Model model(module); }, "'first' and 'second'");
}

}  // namespace
}  // namespace lockstep
