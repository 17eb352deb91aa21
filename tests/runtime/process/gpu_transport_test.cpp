// When the tests on GPUs run over NCCL.
#include "gpu_transport.h"
#include "test_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

DeviceRank nccl(int version, bool may_share) {
  DeviceRank rank;
  rank.nccl_version = version;
  rank.may_share_gpu = may_share;
  return rank;
}

TEST(GpuTestTransport, IsNcclWhereEachRankHasAGpu) {
  for (const bool may_share : {false, true}) {
    EXPECT_EQ(why_not_nccl(2, 2, nccl(22809, may_share)), "");
    EXPECT_EQ(why_not_nccl(2, 8, nccl(22809, may_share)), "");
    EXPECT_EQ(why_not_nccl(3, 4, nccl(23203, may_share)), "");
  }
}

TEST(GpuTestTransport, IsNcclOnOneGpuWithANewNcclAndTheVariable) {
  EXPECT_EQ(why_not_nccl(2, 1, nccl(23203, true)), "");
  EXPECT_THAT(why_not_nccl(2, 1, nccl(23203, false)), HasSubstr("NCCL_MULTI_RANK_GPU_ENABLE=1"));
  EXPECT_THAT(why_not_nccl(2, 1, nccl(22809, true)), HasSubstr("2.28.9 refuses"));
  EXPECT_THAT(why_not_nccl(3, 2, nccl(22809, true)), HasSubstr("ranks 0 and 2 use one GPU"));
}

TEST(GpuTestTransport, SaysWhyThereIsNoNccl) {
  DeviceRank none;
  none.without_nccl = "built without NCCL";
  EXPECT_THAT(why_not_nccl(2, 2, none), HasSubstr("built without NCCL"));
}

}  // namespace
}  // namespace lockstep
