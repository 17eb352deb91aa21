#pragma once

#include <gtest/gtest.h>
#include <lockstep/runtime/step_report.h>

#include <cstdint>

namespace lockstep::testing {

/// Compares every field of two reports of the same step, whichever way the step went. Times differ;
/// each must have been taken.
inline void expect_same_report(const StepReport& found, const StepReport& expected, int64_t step) {
  EXPECT_EQ(found.closes_update(), expected.closes_update()) << step;
  EXPECT_EQ(found.update(), expected.update()) << step;
  EXPECT_EQ(found.micro_batch(), expected.micro_batch()) << step;
  EXPECT_EQ(found.skipped(), expected.skipped()) << step;
  EXPECT_EQ(c10::str(found.loss()), c10::str(expected.loss())) << step;  // NaN as itself
  EXPECT_EQ(c10::str(found.mean_loss()), c10::str(expected.mean_loss())) << step;
  EXPECT_EQ(c10::str(found.grad_norm()), c10::str(expected.grad_norm())) << step;
  EXPECT_EQ(found.scale(), expected.scale()) << step;
  EXPECT_EQ(found.learning_rate(), expected.learning_rate()) << step;
  EXPECT_EQ(found.all_out_of_data(), expected.all_out_of_data()) << step;
  EXPECT_EQ(found.saved() == nullptr, expected.saved() == nullptr) << step;
  for (const StepReport* report : {&found, &expected}) {
    EXPECT_GT(report->compute_seconds(), 0.0) << step;
    EXPECT_EQ(report->exposed_communication_seconds() > 0.0, report->closes_update()) << step;
    EXPECT_EQ(report->update_seconds() > 0.0, report->closes_update()) << step;
  }
}

}  // namespace lockstep::testing
