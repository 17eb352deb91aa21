#pragma once

#include "emulated_cuda/device.h"

#include <gtest/gtest.h>

#include <functional>

namespace lockstep::testing {

/// What a launch returned.
inline void expect_well(const char* problem) {
  ASSERT_EQ(problem, nullptr) << problem;
}

/// One processor needs several rounds where 132 need one.
inline void for_each_device(const std::function<void()>& body) {
  using emulated_cuda::Device;
  using emulated_cuda::Order;
  for (const Device& device : {Device{1, 75, Order::forward}, Device{2, 80, Order::shuffled},
                               Device{132, 90, Order::backward}}) {
    emulated_cuda::device() = device;
    SCOPED_TRACE(std::to_string(device.processors) + " processors");
    body();
  }
}

}  // namespace lockstep::testing
