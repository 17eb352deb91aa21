#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

namespace lockstep::testing {

/// Runs each test once for every SIMD target that this processor has.
class EachSimdTarget : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::GetChosenTarget().Update(GetParam()); }
  void TearDown() override { hwy::GetChosenTarget().DeInit(); }
};

inline std::string simd_target_name(const ::testing::TestParamInfo<int64_t>& info) {
  return hwy::TargetName(info.param);
}

}  // namespace lockstep::testing
