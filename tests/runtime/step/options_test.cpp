// Small value types of the runtime library: losses, flat views, bucket and trainer options.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/batch.h>
#include <lockstep/runtime/loss.h>
#include <lockstep/runtime/storage/impl/flat.h>

#include <cmath>

#include "error_of.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

TEST(Loss, IsAMeanOfWeightOneOrASumWithItsWeight) {
  const Loss mean = at::ones({});
  EXPECT_FALSE(mean.is_sum());
  EXPECT_EQ(mean.weight(), 1.0);
  const Loss sum = Loss::sum(at::ones({}), 0.0);
  EXPECT_TRUE(sum.is_sum());
  EXPECT_EQ(sum.weight(), 0.0);
}

TEST(Loss, RefusesWeightsThatAreNegativeOrNotFinite) {
  for (const double weight : {-1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THAT(error_of([&] { Loss::sum(at::ones({}), weight); }),
                HasSubstr("weight must be finite and not negative"));
  }
}

TEST(Flat, AliasHasTheElementsInMemoryOrder) {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const at::Tensor tensor = at::arange(48).reshape({2, 3, 2, 4}).contiguous(format);
    const at::Tensor flat = flat_alias(tensor, "weight");
    EXPECT_EQ(flat.dim(), 1);
    EXPECT_EQ(flat.const_data_ptr(), tensor.const_data_ptr());
    EXPECT_TRUE(at::equal(shaped_view(flat, 0, tensor), tensor));
  }
}

TEST(Flat, AliasWritesThroughAndHasNoGradient) {
  const at::Tensor tensor = at::zeros({2, 2}).requires_grad_();
  const at::Tensor flat = flat_alias(tensor, "weight");
  EXPECT_FALSE(flat.requires_grad());
  flat.fill_(3);
  EXPECT_EQ(tensor.sum().item<double>(), 12);
}

TEST(Flat, ShapedViewTakesItsPlaceFromTheOffset) {
  const at::Tensor flat = at::arange(10);
  const at::Tensor view = shaped_view(flat.narrow(0, 2, 8), 3, at::zeros({2, 2}));
  EXPECT_TRUE(at::equal(view, at::arange(5, 9).reshape({2, 2})));
}

TEST(Flat, AliasRefusesGapsAndOverlapsByName) {
  const at::Tensor dense = at::zeros({4, 4});
  EXPECT_THAT(error_of([&] { flat_alias(dense.narrow(1, 0, 2), "block.wq"); }),
              HasSubstr("tensor block.wq of sizes [4, 2] and strides [4, 1] has gaps or overlaps"));
  EXPECT_THAT(error_of([&] { flat_alias(at::zeros({1}).expand({3}), "scale"); }),
              HasSubstr("tensor scale"));
}

TEST(ToDevice, MovesNestedBatchesWithoutCasting) {
  const at::Tensor x = at::ones({2}, at::kHalf);
  const at::Tensor y = at::ones({2}, at::kLong);
  const auto batch = std::make_pair(x, std::make_tuple(y, std::vector<at::Tensor>{x, y}));
  const auto result = moved(batch, at::kCPU);
  EXPECT_TRUE(result.first.is_same(x));
  EXPECT_EQ(std::get<1>(result.second)[1].scalar_type(), at::kLong);
}

}  // namespace
}  // namespace lockstep
