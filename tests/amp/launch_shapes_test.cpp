// The shapes and the number of launches, on the emulated device.
#include "emulated_cuda/cuda_runtime.h"
#include "emulated_cuda/launch_count.h"
#include "emulated_launches.h"
#include "test_names.h"
#include "update_samples.h"

#include <gmock/gmock.h>
#include <lockstep/amp/cuda/row_launch.h>

#include <functional>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using namespace amp;

constexpr int64_t kSize = 100000;  // 49 blocks of 256 packs
constexpr int kProcessors = 5;

/// A device of its own for each test: what is known of a kernel is known for one device.
class LaunchShapes : public ::testing::Test {
 protected:
  LaunchShapes() : floats_(4, std::vector<float>(kSize, 1.0F)) {
    static int number = 100;
    emulated_cuda::Device& device = emulated_cuda::device();
    device = {};
    device.processors = kProcessors;
    device.number = ++number;
    device.before = [this](const emulated_cuda::Launch& launch) {
      blocks_.push_back(launch.blocks.x);
    };
  }
  ~LaunchShapes() override { emulated_cuda::device() = {}; }

  Elements elements(int k) { return {floats_[static_cast<size_t>(k)].data(), Element::fp32}; }
  UpdateArrays span(bool narrow = false) {
    UpdateArrays arrays;
    arrays.size = kSize;
    arrays.gradient = elements(0);
    arrays.updated = elements(1);
    arrays.moments[0].data = floats_[2].data();
    arrays.moments[1].data = floats_[3].data();
    arrays.average = narrow ? average_.data() : nullptr;
    return arrays;
  }
  /// The grids of these launches.
  std::vector<unsigned> blocks_of(const std::function<void()>& launches) {
    blocks_.clear();
    launches();
    return std::exchange(blocks_, {});
  }

  StepState state_;
  std::vector<float> average_ = std::vector<float>(kSize, 1.0F);
  std::vector<std::vector<float>> floats_;
  std::vector<unsigned> blocks_;
};

TEST_F(LaunchShapes, KernelsOverManyElementsRunInOneWave) {
  for (const int at_once : {1, 3}) {
    SCOPED_TRACE(at_once);
    emulated_cuda::device().number += 100;
    emulated_cuda::device().blocks_at_once = at_once;
    const auto wave = Each(static_cast<unsigned>(kProcessors * at_once));
    const auto coefficients =
        testing::sample<AdamWUpdate>().prepare(state_, state_.gradient_scale());
    EXPECT_THAT(blocks_of([&] {
                  for (const bool narrow : {false, true}) {
                    expect_well(cuda::launch_update<AdamWUpdate>(span(narrow), &coefficients,
                                                                 &state_, nullptr));
                  }
                  expect_well(cuda::launch_average(span(true), &state_, nullptr));
                }),
                ::testing::AllOf(SizeIs(3), wave));
    EXPECT_THAT(blocks_of([&] {
                  expect_well(cuda::launch_cast(elements(0), elements(1), kSize, 2.0F, nullptr));
                  expect_well(cuda::launch_accumulate(elements(0), elements(1), kSize, nullptr));
                }),
                ::testing::AllOf(SizeIs(2), wave));
    LambBatch batch;  // 13 chunks
    ASSERT_TRUE(batch.add(span()));
    if (at_once == 1) {
      std::vector<LambSums> sums(static_cast<size_t>(batch.chunks()));
      LambUpdate::Move<float> move;
      const LambUpdate lamb{testing::kAdamSample};
      const auto direction = lamb.prepare(state_, state_.gradient_scale());
      const auto blocks = blocks_of([&] {
        expect_well(
            cuda::launch_lamb(lamb, batch, {sums.data(), &move}, &direction, &state_, nullptr));
      });
      EXPECT_THAT(blocks, ::testing::ElementsAre(kProcessors, 1, kProcessors));
    }
  }
}

/// The arrays of a step share a launch: its blocks take chunks of 8192 elements from all of them.
TEST_F(LaunchShapes, CastsOfManyArraysRunInOneWave) {
  CastBatch batch;
  for (int k = 0; k < 2; ++k) {
    ASSERT_TRUE(batch.add(elements(2 * k), elements(2 * k + 1), kSize));
  }
  ASSERT_EQ(batch.chunks, 26);
  CastBatch small;
  ASSERT_TRUE(small.add(elements(0), elements(1), kCastChunk + 1));
  for (const int at_once : {1, 3}) {
    SCOPED_TRACE(at_once);
    emulated_cuda::device().number += 100;
    emulated_cuda::device().blocks_at_once = at_once;
    EXPECT_THAT(blocks_of([&] {
                  expect_well(cuda::launch_casts(batch, 2.0F, nullptr));
                  expect_well(cuda::launch_casts(small, 2.0F, nullptr));
                  expect_well(cuda::launch_casts({}, 2.0F, nullptr));
                }),
                ::testing::ElementsAre(kProcessors * at_once, 2));
  }
  EXPECT_EQ(floats_[2].back(), 2.0F);
}

TEST_F(LaunchShapes, FewElementsGetNoMoreBlocksThanTheyNeed) {
  EXPECT_THAT(blocks_of([&] {
                expect_well(cuda::launch_accumulate(elements(0), elements(1), 2049, nullptr));
              }),
              ::testing::ElementsAre(2));
}

TEST_F(LaunchShapes, ADeviceIsAskedOnceForEachKernel) {
  const auto accumulate = [&] {
    expect_well(cuda::launch_accumulate(elements(0), elements(1), kSize, nullptr));
  };
  accumulate();
  EXPECT_EQ(emulated_cuda::device().occupancy_questions, 1);
  accumulate();
  EXPECT_EQ(emulated_cuda::device().occupancy_questions, 1);
  expect_well(cuda::launch_cast(elements(0), elements(1), kSize, 2.0F, nullptr));
  EXPECT_EQ(emulated_cuda::device().occupancy_questions, 2);
  emulated_cuda::device().number += 100;
  accumulate();
  EXPECT_EQ(emulated_cuda::device().occupancy_questions, 3);
}

/// pow() runs in the launch that computes coefficients and nowhere else: what the update reads is
/// what that launch has written, whatever the number of the update is by then.
TEST_F(LaunchShapes, CoefficientsAreComputedByOneLaunchForAllSpansOfAnUpdate) {
  constexpr int64_t kSpans = 5;
  const AdamWUpdate update = testing::sample<AdamWUpdate>();
  const std::vector<UpdateArrays> spans(kSpans, span());
  std::vector<AdamWUpdate::Prepared<float>> coefficients(kSpans);
  state_.update = 3;
  EXPECT_THAT(blocks_of([&] {
                expect_well(cuda::launch_prepare(update, spans.data(), kSpans, coefficients.data(),
                                                 &state_, nullptr));
              }),
              SizeIs(1));
  const auto third = update.prepare(state_, state_.gradient_scale());
  EXPECT_EQ(coefficients.back().step.step_size, third.step.step_size);
  EXPECT_EQ(coefficients.back().step.root_correction, third.step.root_correction);
  state_.update = 1000;
  expect_well(cuda::launch_update<AdamWUpdate>(spans[0], coefficients.data(), &state_, nullptr));
  float weight = 1.0F, m = 1.0F, v = 1.0F;
  weight = third(weight, 1.0F, m, v);
  EXPECT_EQ(floats_[1][kSize - 1], weight);
}

TEST_F(LaunchShapes, SpansBeyondOneLaunchHaveTheirOwnCoefficients) {
  constexpr size_t kSpans = 300;
  const AdamWUpdate update = testing::sample<AdamWUpdate>();
  std::vector<double> rates(kSpans);
  std::vector<UpdateArrays> spans(kSpans);
  for (size_t i = 0; i < kSpans; ++i) {
    rates[i] = 1e-3 * static_cast<double>(i + 1);
    spans[i].learning_rate = &rates[i];
  }
  std::vector<AdamWUpdate::Prepared<float>> coefficients(kSpans);
  EXPECT_THAT(blocks_of([&] {
                expect_well(cuda::launch_prepare(update, spans.data(), kSpans, coefficients.data(),
                                                 &state_, nullptr));
              }),
              SizeIs(3));
  for (size_t i = 0; i < kSpans; ++i) {
    const StepState own = spans[i].step(state_);
    EXPECT_EQ(coefficients[i].step.step_size,
              update.prepare(own, own.gradient_scale()).step.step_size);
  }
}

}  // namespace
}  // namespace lockstep
