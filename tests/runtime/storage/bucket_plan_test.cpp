#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/storage/impl/bucket_plan.h>

#include <algorithm>
#include <set>

#include "test_names.h"

namespace lockstep {
namespace {

using c10::ScalarType;

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

TEST(BucketPlan, AModelOf7BillionWeightsHas64BucketsInDeviceMemoryUnlessAskedOtherwise) {
  PlannedParameter layer = fp32(7'000'000);
  layer.wire_dtype = c10::ScalarType::BFloat16;
  std::vector<PlannedParameter> parameters(1000, layer);
  const auto size = [&](const BucketOptions& options) {
    return plan_buckets(parameters, options).size();
  };
  EXPECT_EQ(size(BucketOptions()), 1000U) << "on hosts";
  for (PlannedParameter& parameter : parameters) {
    parameter.device = c10::DeviceType::CUDA;
  }
  EXPECT_LE(size(BucketOptions()), 65U);
  EXPECT_GE(size(BucketOptions()), 60U);
  EXPECT_GE(size(BucketOptions().bucket_bytes(kDeviceBucketBytes)), 500U);
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

PlannedParameter whole(int64_t numel) {
  PlannedParameter parameter = fp32(numel);
  parameter.whole = true;
  return parameter;
}

/// In which of `shards` equal shards of the bucket each slot lies; -1 for one that lies in several.
std::vector<int64_t> shards_of(const BucketPlan& plan, int shards) {
  const int64_t stride = plan.numel / shards;
  std::vector<int64_t> found;
  for (const Slot& slot : plan.slots) {
    const int64_t last = (slot.offset + std::max<int64_t>(slot.numel, 1) - 1) / stride;
    found.push_back(slot.offset / stride == last ? last : -1);
  }
  return found;
}

TEST(BucketPlan, PlacesWholeParametersInOneShardEachTheLargestFirst) {
  const auto plans = plan_buckets({whole(64), whole(640), whole(65), whole(300), whole(300)},
                                  BucketOptions(), /*shards=*/2);
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(members(plans[0]), (std::vector<int>{4, 3, 2, 1, 0}));
  // 640; 320, 320; then 128 to the first, which has least, and 64 to the second.
  EXPECT_EQ(shards_of(plans[0], 2), (std::vector<int64_t>{1, 1, 0, 0, 1}));
  EXPECT_EQ(plans[0].numel, 2 * 768);
  std::vector<Slot> slots = plans[0].slots;
  std::sort(slots.begin(), slots.end(),
            [](const Slot& a, const Slot& b) { return a.offset < b.offset; });
  for (size_t i = 0; i < slots.size(); ++i) {
    EXPECT_EQ(slots[i].offset % slot_alignment, 0);
    EXPECT_LE(slots[i].offset + slots[i].numel,
              i + 1 < slots.size() ? slots[i + 1].offset : plans[0].numel);
  }
}

TEST(BucketPlan, TakesWholeParametersUntilPaddingIsAtMostAFifth) {
  const std::vector<PlannedParameter> nine(9, whole(64));  // 256 bytes each
  const auto plans = plan_buckets(nine, bytes(256, 256), /*shards=*/4);
  ASSERT_EQ(plans.size(), 3U);
  EXPECT_EQ(members(plans[0]), (std::vector<int>{8, 7, 6, 5}));
  EXPECT_EQ(members(plans[1]), (std::vector<int>{4, 3, 2, 1}));
  EXPECT_EQ(plans[1].numel, 4 * 64);
  EXPECT_EQ(members(plans[2]), (std::vector<int>{0}));
  EXPECT_EQ(plans[2].numel, 4 * 64) << "the last one has one parameter, and padding";
}

TEST(BucketPlan, KeepsWholeParametersApartOnlyWhereTheOptimizerIsSharded) {
  const std::vector<PlannedParameter> mixed = {fp32(100), whole(64), fp32(64), whole(64)};
  const auto sharded = plan_buckets(mixed, BucketOptions(), /*shards=*/2);
  ASSERT_EQ(sharded.size(), 2U);
  EXPECT_EQ(members(sharded[0]), (std::vector<int>{3, 1}));
  EXPECT_EQ(members(sharded[1]), (std::vector<int>{2, 0}));
  const auto one = plan_buckets(mixed, BucketOptions());
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].numel, 128 + 3 * 64);
}

TEST(BucketPlan, SaysWhereMuchOfTheBucketsIsPadding) {
  EXPECT_EQ(padding_note({}), "");
  EXPECT_EQ(padding_note(plan_buckets({fp32(640)}, {})), "");
  EXPECT_EQ(padding_note(plan_buckets({fp32(3), fp32(2)}, {})), "");  // aligned
  std::vector<PlannedParameter> parameters(9);
  for (PlannedParameter& parameter : parameters) {
    parameter.numel = 1 << 10;
    parameter.whole = true;
  }
  parameters[0].numel = 1 << 20;
  const auto plans = plan_buckets(parameters, {}, /*shards=*/4);
  EXPECT_THAT(padding_note(plans), ::testing::HasSubstr("74 % of their elements"));
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
