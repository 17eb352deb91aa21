#include <gtest/gtest.h>
#include <lockstep/runtime/loader.h>
#include <torch/data/datasets.h>
#include <torch/data/transforms.h>

namespace lockstep {
namespace {

struct Squares : torch::data::datasets::Dataset<Squares> {
  torch::data::Example<> get(size_t index) override {
    const auto value = static_cast<int64_t>(index);
    return {at::full({2}, value, at::kLong), at::scalar_tensor(value * value, at::kLong)};
  }
  std::optional<size_t> size() const override { return 5; }
};

TEST(TorchDataset, ExamplesAreStacked) {
  Loader<Squares> loader({}, 1, 2, 0, LoaderOptions().batch_size(8));
  const torch::data::Example<>& batch = *loader.begin();
  EXPECT_TRUE(at::equal(batch.data, at::tensor({1, 1, 3, 3}, at::kLong).view({2, 2})));
  EXPECT_TRUE(at::equal(batch.target, at::tensor({1, 9}, at::kLong)));
}

TEST(TorchDataset, AStackedMapIsTakenAsItIs) {
  auto dataset = Squares().map(torch::data::transforms::Stack<>());
  Loader<decltype(dataset)> loader(std::move(dataset), 0, 1, 0, LoaderOptions().batch_size(2));
  std::vector<int64_t> targets;
  for (auto& batch : loader) {
    targets.push_back(batch.target.sum().template item<int64_t>());
  }
  EXPECT_EQ(targets, (std::vector<int64_t>{1, 13, 16}));
}

TEST(TorchDataset, TensorsWithoutTargetAreStacked) {
  torch::data::datasets::TensorDataset dataset(at::arange(6).view({3, 2}));
  Loader<decltype(dataset)> loader(dataset, 0, 1, 0, LoaderOptions().batch_size(3).workers(1));
  EXPECT_TRUE(at::equal((*loader.begin()).data, at::arange(6).view({3, 2})));
}

}  // namespace
}  // namespace lockstep
