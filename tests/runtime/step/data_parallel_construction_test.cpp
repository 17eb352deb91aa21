// Behaviours of data-parallel construction: what is compared, refused and copied before training.
#include <ATen/ops/empty_strided.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/runtime/data_parallel.h>

#include <optional>

#include "error_of.h"
#include "runtime/across_ranks.h"
#include "runtime/models.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

bool is_last_rank() {
  return runtime().rank() == runtime().size() - 1;
}

std::string refusal(const Model& model) {
  return error_of([&] { DataParallel parallel(runtime().communicator(), model); });
}

std::string last_rank() {
  return c10::str("rank ", runtime().size() - 1);
}

/// One averaged step works: the weight's gradient is the mean of rank + 1.
void expect_trains(const std::shared_ptr<OneWeight>& model) {
  DataParallel parallel(runtime().communicator(), model);
  testing::clear_gradients(*model);
  (model->weight * (runtime().rank() + 1)).sum().backward();
  parallel.finish();
  EXPECT_TRUE(
      at::equal(model->weight.grad(), at::full_like(model->weight, (runtime().size() + 1) / 2.0)));
}

TEST(WrappedModels, ModelWithoutTrainableParameterIsRefused) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3}));
  model->weight.requires_grad_(false);
  EXPECT_THAT(refusal(model), HasSubstr("no trainable parameter (1 are frozen)"));
}

TEST(WrappedModels, DifferentParameterCountIsNamedOnEveryRank) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3}));
  if (is_last_rank()) {
    model->register_parameter("extra", testing::ones({2}));
  }
  const std::string message = refusal(model);
  EXPECT_THAT(message, HasSubstr(last_rank() + " (2 parameters and buffers)"));
  EXPECT_THAT(message, HasSubstr("rank 0 has nothing more"));
  EXPECT_THAT(message, HasSubstr("parameter extra"));
  expect_trains(std::make_shared<OneWeight>(testing::ones({3})));
}

TEST(WrappedModels, DifferentShapeIsNamedOnEveryRank) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3, is_last_rank() ? 5 : 4}));
  const std::string message = refusal(model);
  EXPECT_THAT(message, HasSubstr("parameter weight sizes [3, 4]"));
  EXPECT_THAT(message, HasSubstr("parameter weight sizes [3, 5]"));
  EXPECT_THAT(message, HasSubstr(last_rank()));
}

TEST(WrappedModels, DifferentMemoryLayoutIsNamedOnEveryRank) {
  const auto format =
      is_last_rank() ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  const auto model = std::make_shared<OneWeight>(testing::ones({2, 3, 4, 4}).contiguous(format));
  const std::string message = refusal(model);
  EXPECT_THAT(message, HasSubstr("strides [48, 16, 4, 1]"));
  EXPECT_THAT(message, HasSubstr("strides [48, 1, 12, 3]"));
}

TEST(WrappedModels, AllRanksStartFromRankZero) {
  at::manual_seed(100 + static_cast<uint64_t>(runtime().rank()));
  const auto model = std::make_shared<Mlp>();
  const at::Tensor buffer =
      model->register_buffer("seen", testing::full({2}, runtime().rank(), at::kLong));
  const at::Tensor own = model->first->weight.detach().clone();
  ASSERT_FALSE(equal_on_all_ranks(own));
  DataParallel parallel(runtime().communicator(), model);
  for (const at::Tensor& parameter : model->parameters()) {
    EXPECT_TRUE(equal_on_all_ranks(parameter));
  }
  EXPECT_EQ(buffer.sum().item<int64_t>(), 0);
  EXPECT_EQ(at::equal(own, model->first->weight), runtime().is_main());
}

TEST(WrappedModels, ModelTrainsAgainAfterItsWrapperIsGone) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3}));
  for (int wrapper = 0; wrapper < 3; ++wrapper) {
    expect_trains(model);
  }
  testing::clear_gradients(*model);
  (model->weight * (runtime().rank() + 1)).sum().backward();  // nobody averages this one
  EXPECT_EQ(model->weight.grad()[0].item<double>(), runtime().rank() + 1);
}

TEST(WrappedModels, ModelTrainsAgainAfterAnExceptionInBackward) {
  const auto model = std::make_shared<Mlp>();
  const DataParallelOptions one_each =
      DataParallelOptions().buckets(BucketOptions().first_bucket_bytes(1).bucket_bytes(1));
  {
    DataParallel parallel(runtime().communicator(), model, one_each);
    at::Tensor hidden = at::tanh(model->first->forward(testing::ones({2, 4})));
    hidden.register_hook([](const at::Tensor&) -> at::Tensor { throw Error("half way"); });
    EXPECT_THAT(error_of([&] { model->second->forward(hidden).sum().backward(); }),
                HasSubstr("half way"));
  }
  testing::clear_gradients(*model);
  DataParallel parallel(runtime().communicator(), model, one_each);
  const at::Tensor x = drawn({2, 4}, 7 + static_cast<uint64_t>(runtime().rank()));
  model->forward(x).sum().backward();
  parallel.finish();
  EXPECT_TRUE(equal_on_all_ranks(model->first->weight.grad()));
  EXPECT_GT(model->first->weight.grad().abs().sum().item<double>(), 0);
}

TEST(DataParallel, NamesADifferentDtypeOnEveryRank) {
  const auto model =
      std::make_shared<OneWeight>(testing::ones({3}, is_last_rank() ? at::kHalf : at::kFloat));
  const std::string message = refusal(model);
  EXPECT_THAT(message, HasSubstr("Float trainable"));
  EXPECT_THAT(message, HasSubstr("Half trainable"));
}

TEST(DataParallel, NamesADifferentParameterNameOnEveryRank) {
  const auto model = std::make_shared<torch::nn::Module>();
  model->register_parameter(is_last_rank() ? "gamma" : "weight", testing::ones({3}));
  const std::string message = refusal(model);
  EXPECT_THAT(message, HasSubstr("parameter weight"));
  EXPECT_THAT(message, HasSubstr("parameter gamma"));
}

TEST(DataParallel, NamesDifferentTrainabilityOnEveryRank) {
  const auto model = std::make_shared<Mlp>();
  model->second->bias.requires_grad_(!is_last_rank());
  EXPECT_THAT(refusal(model),
              HasSubstr("parameter second.bias sizes [2] strides [1] Float frozen"));
}

TEST(DataParallel, NamesADifferentBufferOnEveryRank) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3}));
  model->register_buffer("steps", testing::zeros({1}, is_last_rank() ? at::kInt : at::kLong));
  EXPECT_THAT(refusal(model), HasSubstr("buffer steps"));
}

TEST(DataParallel, RefusesAModelThatIsWrappedAlready) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3}));
  {
    DataParallel parallel(runtime().communicator(), model);
    EXPECT_THAT(refusal(model), HasSubstr("parameter weight already has a gradient hook"));
  }
  expect_trains(model);
}

TEST(DataParallel, NamesTheRankThatHasWrappedTheModelAlreadyOnEveryRank) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3}));
  {
    std::optional<DataParallel> own;
    if (runtime().rank() == 1) {
      own.emplace(testing::solo_runtime().communicator(), model);
    }
    EXPECT_THAT(refusal(model), HasSubstr("rank 1: parameter weight already has a gradient hook"));
  }
  expect_trains(model);
}

TEST(DataParallel, RefusesAComplex32ParameterByName) {
  const auto model = std::make_shared<torch::nn::Module>();
  model->register_parameter("phase", testing::ones({3}, at::kComplexHalf));
  EXPECT_THAT(refusal(model), HasSubstr("parameter phase has dtype ComplexHalf"));
}

TEST(DataParallel, RefusesAParameterWithGapsByName) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3}));
  model->register_parameter("strided", at::empty_strided({4}, {2}, testing::on_device()).fill_(1));
  EXPECT_THAT(refusal(model), HasSubstr("tensor strided of sizes [4] and strides [2] has gaps"));
}

TEST(DataParallel, CopiesThatStillDifferAfterTheBroadcastAreAnErrorOnEveryRank) {
  Communicator brings_nothing = Communicator::solo();
  Agreement agreement(runtime().control());
  const at::Tensor weight = at::full({3}, 1.0 + runtime().rank());
  try {
    broadcast_and_verify({{"weight", {}, weight}}, brings_nothing, agreement);
    ADD_FAILURE() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::diverged);
    EXPECT_THAT(error.what(), HasSubstr("memory or transport is faulty"));
  }
}

TEST(DataParallel, MovesWithItsHooks) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3}));
  DataParallel first(runtime().communicator(), std::make_shared<OneWeight>(testing::ones({2})));
  DataParallel second(runtime().communicator(), model);
  first = std::move(second);
  (model->weight * (1.0 + runtime().rank())).sum().backward();
  first.finish();
  EXPECT_NEAR(model->weight.grad()[0].item<double>(), (runtime().size() + 1) / 2.0, 1e-6);
  EXPECT_EQ(first.buckets(), 1);
}

TEST(DataParallel, ComparesHashesOverAllRanks) {
  Communicator control = runtime().control();
  const at::Tensor values = drawn({1000}, 3);
  EXPECT_TRUE(same_on_all_ranks(digest({values}), control));
  if (is_last_rank()) {
    values[999].fill_(std::nextafter(values[999].item<float>(), 100.0F));
  }
  EXPECT_FALSE(same_on_all_ranks(digest({values}), control));
}

}  // namespace
}  // namespace lockstep
