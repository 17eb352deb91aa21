#pragma once

#include "emulated_cuda/device.h"

#include <gtest/gtest.h>
#include <lockstep/amp/cuda/launch.h>

#include <functional>

namespace lockstep::testing {

/// What a launch returned.
inline void expect_well(const char* problem) {
  ASSERT_EQ(problem, nullptr) << problem;
}

/// One span's update: two launches.
template <typename Update>
const char* launch_update(const Update& update, const amp::UpdateArrays& arrays,
                          const amp::StepState* state) {
  amp::Coefficients<Update> coefficients;
  const char* problem =
      amp::cuda::launch_prepare(update, &arrays, 1, &coefficients, state, nullptr);
  return problem != nullptr
             ? problem
             : amp::cuda::launch_update<Update>(arrays, &coefficients, state, nullptr);
}

/// LAMB's update of a batch: four launches.
inline const char* launch_lamb(const amp::LambUpdate& update, const amp::LambBatch& batch,
                               const amp::LambScratch& scratch, const amp::StepState* state) {
  amp::Coefficients<amp::LambUpdate> coefficients[amp::LambBatch::kSpans];
  const char* problem =
      amp::cuda::launch_prepare(update, batch.spans, batch.count, coefficients, state, nullptr);
  return problem != nullptr
             ? problem
             : amp::cuda::launch_lamb(update, batch, scratch, coefficients, state, nullptr);
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
