#include "spans.h"
#include "test_names.h"

#include <lockstep/amp/autocast.h>
#include <lockstep/amp/model.h>
#include <lockstep/amp/precision.h>
#include <torch/nn.h>

namespace lockstep {
namespace {

std::vector<std::string> names(const std::vector<ModelTensor>& tensors) {
  std::vector<std::string> result;
  for (const ModelTensor& tensor : tensors) {
    result.push_back(tensor.name);
  }
  return result;
}

const ModelTensor& find(const std::vector<ModelTensor>& tensors, const std::string& name) {
  for (const ModelTensor& tensor : tensors) {
    if (tensor.name == name) {
      return tensor;
    }
  }
  throw std::out_of_range(name);
}

std::vector<std::string> norm_names(const Model& model) {
  std::vector<std::string> result;
  for (const ModelTensor& tensor : model.parameters()) {
    if (tensor.in_norm) {
      result.push_back(tensor.name);
    }
  }
  return result;
}

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    scale = register_parameter("scale", torch::ones({3}));
    inner = register_module(
        "inner", torch::nn::Sequential(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4)));
    steps = register_buffer("steps", torch::arange(2047, 2052));
  }
  torch::Tensor scale, steps;
  torch::nn::Sequential inner{nullptr};
};
TORCH_MODULE(Block);

TEST(ModelOfNn, NamesTensorsAsPythonDoes) {
  Block block;
  const Model model(block);
  EXPECT_THAT(names(model.parameters()),
              ::testing::ElementsAre("scale", "inner.0.weight", "inner.0.bias", "inner.1.weight",
                                     "inner.1.bias"));
  EXPECT_THAT(names(model.buffers()),
              ::testing::ElementsAre("steps", "inner.1.running_mean", "inner.1.running_var",
                                     "inner.1.num_batches_tracked"));
}

TEST(ModelOfNn, SharesTheTensorsOfTheModule) {
  Block block;
  const Model model(block);
  EXPECT_TRUE(find(model.parameters(), "scale").tensor.is_same(block->scale));
  EXPECT_TRUE(find(model.buffers(), "steps").tensor.is_same(block->steps));
}

TEST(ModelOfNn, ConvertsFromWhatUsersHold) {
  Block block;
  const auto count = [](const Model& model) { return model.parameters().size(); };
  EXPECT_EQ(count(block), 5U);
  EXPECT_EQ(count(block.ptr()), 5U);
  EXPECT_EQ(count(*block), 5U);
  EXPECT_EQ(count(std::shared_ptr<torch::nn::Module>(block.ptr())), 5U);
}

TEST(ModelOfNn, KeepsTheModuleAlive) {
  std::weak_ptr<BlockImpl> watch;
  std::unique_ptr<Model> model;
  {
    Block block;
    watch = block.ptr();
    model = std::make_unique<Model>(block);
  }
  EXPECT_FALSE(watch.expired());
  model.reset();
  EXPECT_TRUE(watch.expired());
}

TEST(ModelOfNn, RefusesAnEmptyHolder) {
  expect_error([] { Model model(std::shared_ptr<torch::nn::Module>{}); }, "nullptr");
}

TEST(ModelOfNn, FrozenParametersAreListed) {
  Block block;
  block->scale.requires_grad_(false);
  EXPECT_EQ(Model(block).parameters().size(), 5U);
}

TEST(ModelOfNn, KnowsNormsOfEveryDimension) {
  namespace nn = torch::nn;
  nn::Sequential norms(nn::BatchNorm1d(2), nn::BatchNorm2d(2), nn::BatchNorm3d(2),
                       nn::InstanceNorm1d(nn::InstanceNorm1dOptions(2).affine(true)),
                       nn::InstanceNorm2d(nn::InstanceNorm2dOptions(2).affine(true)),
                       nn::InstanceNorm3d(nn::InstanceNorm3dOptions(2).affine(true)),
                       nn::LayerNorm(nn::LayerNormOptions({2})), nn::GroupNorm(1, 2));
  const Model model(norms);
  EXPECT_EQ(model.parameters().size(), 16U);
  EXPECT_EQ(norm_names(model).size(), 16U);
  EXPECT_TRUE(find(model.buffers(), "0.running_mean").in_norm);
}

struct SyncBatchNormImpl : torch::nn::Module {
  SyncBatchNormImpl() { register_parameter("weight", torch::ones({2})); }
};
struct LlamaRMSNorm : torch::nn::Module {
  LlamaRMSNorm() { register_parameter("weight", torch::ones({2})); }
};
struct ScaledImpl : torch::nn::LayerNormImpl {
  using LayerNormImpl::LayerNormImpl;
};
struct NormalizerImpl : torch::nn::Module {
  NormalizerImpl() { register_parameter("weight", torch::ones({2})); }
};

TEST(ModelOfNn, KnowsNormsByNameAndByBaseClass) {
  torch::nn::ModuleList list;
  list->push_back(std::make_shared<SyncBatchNormImpl>());
  list->push_back(std::make_shared<LlamaRMSNorm>());
  list->push_back(std::make_shared<ScaledImpl>(torch::nn::LayerNormOptions({2})));
  list->push_back(std::make_shared<NormalizerImpl>());
  EXPECT_THAT(norm_names(Model(list)),
              ::testing::ElementsAre("0.weight", "1.weight", "2.weight", "2.bias"));
}

TEST(ModelOfNn, OtherLayersAreNoNorms) {
  EXPECT_TRUE(norm_names(Model(torch::nn::Linear(2, 2))).empty());
  EXPECT_TRUE(norm_names(Model(torch::nn::LSTM(2, 2))).empty());
  EXPECT_THAT(norm_names(Model(Block())), ::testing::ElementsAre("inner.1.weight", "inner.1.bias"));
}

TEST(ModelOfNn, NormWithoutAffineHasNoParameters) {
  torch::nn::BatchNorm2d norm(torch::nn::BatchNorm2dOptions(2).affine(false));
  EXPECT_TRUE(Model(norm).parameters().empty());
  EXPECT_EQ(Model(norm).buffers().size(), 3U);
}

TEST(ModelOfNn, LstmHasPythonsNames) {
  const Model model(torch::nn::LSTM(torch::nn::LSTMOptions(3, 4).num_layers(2)));
  EXPECT_THAT(names(model.parameters()),
              ::testing::ElementsAre("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0",
                                     "weight_ih_l1", "weight_hh_l1", "bias_ih_l1", "bias_hh_l1"));
}

struct TiedHead : torch::nn::Module {
  TiedHead() {
    encoder = register_module("encoder", torch::nn::Embedding(5, 3));
    weight = register_parameter("weight", encoder->weight);
    shared = register_module("shared", encoder);
  }
  torch::nn::Embedding encoder{nullptr}, shared{nullptr};
  torch::Tensor weight;
};

TEST(ModelOfNn, TiedTensorsAppearOnceWithAllTheirNames) {
  const Model model(std::make_shared<TiedHead>());
  ASSERT_THAT(names(model.parameters()), ::testing::ElementsAre("weight"));
  EXPECT_THAT(model.parameters()[0].aliases,
              ::testing::ElementsAre("encoder.weight", "shared.weight"));
}

struct ViewTied : torch::nn::Module {
  explicit ViewTied(int64_t begin) {
    const auto all = torch::zeros({10});
    register_parameter("first", all.slice(0, 0, 5).detach());
    register_parameter("second", all.slice(0, begin, 10).detach());
  }
};

TEST(ModelOfNn, OverlappingTensorsAreRefusedByName) {
  expect_error([] { Model model(std::make_shared<ViewTied>(4)); }, "'first' and 'second'");
  expect_error([] { Model model(std::make_shared<ViewTied>(0)); }, "'first' and 'second'");
}

TEST(ModelOfNn, NeighboursInOneStorageAreFine) {
  EXPECT_EQ(Model(std::make_shared<ViewTied>(5)).parameters().size(), 2U);
}

struct EmptyInside : torch::nn::Module {
  EmptyInside() {
    const auto all = torch::zeros({10});
    register_parameter("all", all);
    register_parameter("none", all.slice(0, 3, 3).detach());
  }
};

TEST(ModelOfNn, AnEmptyTensorOverlapsNothing) {
  EXPECT_EQ(Model(std::make_shared<EmptyInside>()).parameters().size(), 2U);
}

TEST(StorageDtypes, StorageDtypesOfAModelLeaveIntegersAndNormsAlone) {
  Block block;
  const Model model(block);
  const Precision o2 = Precision::O2();
  EXPECT_EQ(o2.storage_dtype(find(model.parameters(), "scale")), at::kHalf);
  EXPECT_EQ(o2.storage_dtype(find(model.parameters(), "inner.0.weight")), at::kHalf);
  EXPECT_EQ(o2.storage_dtype(find(model.parameters(), "inner.1.weight")), at::kFloat);
  EXPECT_EQ(o2.buffer_dtype(find(model.buffers(), "inner.1.running_var")), at::kFloat);
  EXPECT_EQ(o2.buffer_dtype(find(model.buffers(), "inner.1.num_batches_tracked")), at::kLong);
  EXPECT_EQ(o2.buffer_dtype(find(model.buffers(), "steps")), at::kLong);
}

/// Gives every tensor the dtype that the level stores it in.
void convert(torch::nn::Module& module, const Precision& precision) {
  const Model model(module);
  for (const ModelTensor& tensor : model.parameters()) {
    tensor.tensor.set_data(tensor.tensor.to(precision.storage_dtype(tensor)));
  }
  for (const ModelTensor& tensor : model.buffers()) {
    tensor.tensor.set_data(tensor.tensor.to(precision.buffer_dtype(tensor)));
  }
}

TEST(StorageDtypes, ModuleToHalfRoundsIntegerBuffers) {
  Block block;
  block->to(torch::kHalf);
  EXPECT_EQ(block->steps.scalar_type(), torch::kHalf);
  EXPECT_EQ(block->steps[2].item<float>(), 2048.0F);  // was 2049
  Block ours;
  convert(*ours, Precision::O2());
  EXPECT_EQ(ours->scale.scalar_type(), torch::kHalf);
  EXPECT_EQ(ours->steps[2].item<int64_t>(), 2049);
}

torch::nn::BatchNorm1d norm_of(const Block& block) {
  return std::dynamic_pointer_cast<torch::nn::BatchNorm1dImpl>(block->inner->ptr(1));
}

TEST(StorageDtypes, EvalBatchNormWithHalfWeightsFailsOnFp32Input) {
  torch::nn::BatchNorm1d norm(4);
  norm->to(torch::kHalf);
  norm->eval();
  EXPECT_ANY_THROW(norm(torch::ones({2, 4})));
  Block ours;
  convert(*ours, Precision::O2());
  ours->eval();
  EXPECT_NO_THROW(norm_of(ours)->forward(torch::ones({2, 4})));
}

TEST(StorageDtypes, EvalBatchNormAtO2TakesAnyInput) {
  Block block;
  convert(*block, Precision::O2());
  block->eval();
  const amp::Autocast region(at::kCPU, at::kHalf);
  for (const auto dtype : {at::kFloat, at::kHalf}) {
    const auto x = torch::ones({2, 4}, dtype);
    EXPECT_TRUE(block->inner->forward(x).isfinite().all().item<bool>());
    const auto normed = norm_of(block)->forward(x);
    EXPECT_EQ(normed.scalar_type(), dtype);
    EXPECT_TRUE(normed.isfinite().all().item<bool>());
  }
}

TEST(StorageDtypes, BatchNormStatisticsBeyondHalfStayFinite) {
  Block block;
  convert(*block, Precision::O2());
  block->train();
  {
    const amp::Autocast region(at::kCPU, at::kHalf);
    block->inner->forward(torch::randn({64, 4}) * 4000.0);
  }
  const auto variance = find(Model(block).buffers(), "inner.1.running_var").tensor;
  EXPECT_GT(variance.max().item<float>(), 65504.0F);
  EXPECT_TRUE(variance.isfinite().all().item<bool>());
  EXPECT_TRUE(variance.to(at::kHalf).isinf().any().item<bool>());
}

}  // namespace
}  // namespace lockstep
