#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::testing {

/// What a training run left behind, to be compared bit for bit.
struct Trained {
  std::vector<at::Tensor> tensors;
  std::string report;  // Trainer::activation_report()
};

inline void expect_equal(const Trained& expected, const Trained& ours, const std::string& what) {
  ASSERT_EQ(expected.tensors.size(), ours.tensors.size()) << what;
  for (size_t i = 0; i < expected.tensors.size(); ++i) {
    EXPECT_TRUE(at::equal(expected.tensors[i], ours.tensors[i])) << what << ", tensor " << i;
  }
}

}  // namespace lockstep::testing
