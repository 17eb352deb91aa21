#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/error.h>
#include <lockstep/runtime/bucket_plan.h>

#include <set>

namespace lockstep {
namespace {

using c10::ScalarType;
using ::testing::HasSubstr;

PlannedParameter fp32(int64_t numel, int group = 0) {
  return {numel, ScalarType::Float, ScalarType::Float, group};
}

std::vector<int> members(const BucketPlan& plan) {
  std::vector<int> result;
  for (const Slot& slot : plan.slots) {
    result.push_back(slot.parameter);
  }
  return result;
}

BucketOptions bytes(int64_t first, int64_t later) {
  return BucketOptions().first_bucket_bytes(first).bucket_bytes(later);
}

TEST(BucketPlan, HoldsEveryParameterOnceInReverseOrder) {
  const auto plans = plan_buckets({fp32(10), fp32(1000), fp32(3)}, BucketOptions());
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(members(plans[0]), (std::vector<int>{2, 1, 0}));
  EXPECT_EQ(plans[0].slots[1].numel, 1000);
}

TEST(BucketPlan, AlignsSlotsAndPadsWithoutOverlap) {
  const auto plans =
      plan_buckets({fp32(1), fp32(65), fp32(64), fp32(0), fp32(127)}, BucketOptions());
  ASSERT_EQ(plans.size(), 1U);
  int64_t end = 0;
  for (const Slot& slot : plans[0].slots) {
    EXPECT_EQ(slot.offset % slot_alignment, 0);
    EXPECT_GE(slot.offset, end);
    end = slot.offset + slot.numel;
  }
  EXPECT_EQ(plans[0].numel, 128 + 0 + 64 + 128 + 64);
}

TEST(BucketPlan, ClosesTheFirstBucketEarlyAndLaterOnesAtTheirLimit) {
  const std::vector<PlannedParameter> ten(10, fp32(64));  // 256 bytes each
  const auto plans = plan_buckets(ten, bytes(256, 1024));
  ASSERT_EQ(plans.size(), 4U);
  EXPECT_EQ(members(plans[0]), (std::vector<int>{9}));
  EXPECT_EQ(members(plans[1]), (std::vector<int>{8, 7, 6, 5}));
  EXPECT_EQ(members(plans[2]), (std::vector<int>{4, 3, 2, 1}));
  EXPECT_EQ(members(plans[3]), (std::vector<int>{0}));
}

TEST(BucketPlan, NeverSplitsAGiantParameter) {
  const auto plans = plan_buckets({fp32(64), fp32(1'000'000), fp32(64)}, bytes(1024, 1024));
  ASSERT_EQ(plans.size(), 2U);
  EXPECT_EQ(members(plans[0]), (std::vector<int>{2, 1}));
  EXPECT_EQ(plans[0].slots[1].numel, 1'000'000);
}

TEST(BucketPlan, TheDefaultIsSmallerOnHostsThanInDeviceMemory) {
  std::vector<PlannedParameter> parameters(40, fp32(250'000));  // 1 MB each
  EXPECT_EQ(plan_buckets(parameters, BucketOptions()).size(),
            9U);  // 2 MB, then 5 of 4 MiB and more
  for (PlannedParameter& parameter : parameters) {
    parameter.device = c10::DeviceType::CUDA;
  }
  EXPECT_EQ(plan_buckets(parameters, BucketOptions()).size(), 3U);
}

TEST(BucketPlan, AHalfFullBucketDoesNotWaitForAGiantParameter) {
  const auto giant = fp32(1'000'000);
  const auto half_full = plan_buckets({giant, fp32(64), fp32(64)}, bytes(1024, 1024));
  ASSERT_EQ(half_full.size(), 2U);
  EXPECT_EQ(members(half_full[0]), (std::vector<int>{2, 1}));
  EXPECT_EQ(members(half_full[1]), (std::vector<int>{0}));
  const auto less = plan_buckets({giant, fp32(64), fp32(1), fp32(64)}, bytes(256, 2048));
  ASSERT_EQ(less.size(), 2U);
  EXPECT_EQ(members(less[1]), (std::vector<int>{2, 1, 0}))
      << "a small bucket of its own costs more";
}

TEST(BucketPlan, GivesOneByteLimitsABucketPerParameter) {
  const auto plans = plan_buckets({fp32(5), fp32(6), fp32(7)}, bytes(1, 1));
  ASSERT_EQ(plans.size(), 3U);
  EXPECT_EQ(members(plans[2]), (std::vector<int>{0}));
}

TEST(BucketPlan, KeepsDtypesWiresAndGroupsApart) {
  const PlannedParameter half{64, ScalarType::Half, ScalarType::Half, 0};
  const PlannedParameter norm{64, ScalarType::Float, ScalarType::Half, 0};
  const auto plans = plan_buckets({half, norm, fp32(64), fp32(64, 1), half, norm}, BucketOptions());
  ASSERT_EQ(plans.size(), 4U);
  std::set<int> seen;
  for (const BucketPlan& plan : plans) {
    for (const Slot& slot : plan.slots) {
      seen.insert(slot.parameter);
    }
  }
  EXPECT_EQ(seen.size(), 6U);
  const auto of = [&](ScalarType weight, ScalarType wire, int group) {
    for (const BucketPlan& plan : plans) {
      if (plan.weight_dtype == weight && plan.wire_dtype == wire && plan.group == group) {
        return members(plan);
      }
    }
    return std::vector<int>();
  };
  EXPECT_EQ(of(ScalarType::Half, ScalarType::Half, 0), (std::vector<int>{4, 0}));
  EXPECT_EQ(of(ScalarType::Float, ScalarType::Half, 0), (std::vector<int>{5, 1}));
  EXPECT_EQ(of(ScalarType::Float, ScalarType::Float, 1), (std::vector<int>{3}));
}

TEST(BucketPlan, OrdersBucketsByTheirLastParametersTurn) {
  // The norm bucket is complete only when backward reaches parameter 0, so it comes last.
  const PlannedParameter norm{64, ScalarType::Float, ScalarType::Half, 0};
  const PlannedParameter half{64, ScalarType::Half, ScalarType::Half, 0};
  const auto plans = plan_buckets({norm, half, half, norm}, BucketOptions());
  ASSERT_EQ(plans.size(), 2U);
  EXPECT_EQ(members(plans[0]), (std::vector<int>{2, 1}));
  EXPECT_EQ(members(plans[1]), (std::vector<int>{3, 0}));
}

TEST(BucketPlan, CountsBytesOnTheWire) {
  const PlannedParameter narrow{64, ScalarType::Float, ScalarType::Half, 0};
  EXPECT_EQ(plan_buckets({narrow, narrow}, bytes(256, 256)).size(), 1U);
  EXPECT_EQ(plan_buckets({fp32(64), fp32(64)}, bytes(256, 256)).size(), 2U);
}

TEST(BucketPlan, IsEmptyForNoParameters) {
  EXPECT_TRUE(plan_buckets({}, BucketOptions()).empty());
}

TEST(BucketPlan, RefusesByteLimitsThatAreNotPositive) {
  const auto message = [](const BucketOptions& options) -> std::string {
    try {
      plan_buckets({fp32(1)}, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message(bytes(0, 1)), HasSubstr("first_bucket_bytes must be > 0, is 0"));
  EXPECT_THAT(message(bytes(1, -5)), HasSubstr("bucket_bytes must be >= 0, is -5"));
}

}  // namespace
}  // namespace lockstep
