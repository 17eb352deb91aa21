// Two ranks on GPUs, or on one; their collectives through the host, or over NCCL with
// LOCKSTEP_TRANSPORT=nccl.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>

#include <cmath>
#include <memory>

#include "runtime/cuda_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// The ranks of this program; MPI starts once in a process.
class RanksOnCuda : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ranks_ = std::make_unique<Runtime>(0, nullptr,
                                       RuntimeOptions()
                                           .device(DeviceKind::cuda)
                                           .share_device(true)
                                           .transport(DeviceTransport::staged));
  }
  static void TearDownTestSuite() { ranks_.reset(); }

  static std::unique_ptr<Runtime> ranks_;
};

std::unique_ptr<Runtime> RanksOnCuda::ranks_;

TEST_F(RanksOnCuda, HaveTheLossCurveOfOneRankWithAllRows) {
  Runtime& runtime = *ranks_;
  ASSERT_EQ(runtime.size(), 2);
  Runtime alone = Runtime::solo(RuntimeOptions().device(DeviceKind::cuda));
  const auto options = TrainerOptions().clip_grad_norm(1.0);
  DeviceRun whole(alone, options);
  DeviceRun ranks(runtime, options);
  Communicator control = runtime.control();
  for (int64_t step = 0; step < 40; ++step) {
    const double expected = whole.step(step).loss();
    const double mine = ranks.step(rows_of(step, 16 * runtime.rank(), 16)).loss();
    const at::Tensor mean = at::full({1}, mine, at::kDouble);
    control.all_reduce(mean, ReduceOp::avg()).wait();
    EXPECT_NEAR(mean.item<double>(), expected, 1e-4 * std::fabs(expected)) << step;
  }
  EXPECT_TRUE(ranks.trainer->replicas_agree());
}

/// Each array of the state is compared within so many updates; the host knows two updates later.
TEST_F(RanksOnCuda, NameTheRankWhoseMemoryDivergedWithinSoManyUpdates) {
  constexpr int every = 6;
  Runtime& runtime = *ranks_;
  for (const size_t parameter : {0, 3}) {
    DeviceRun run(runtime, TrainerOptions().compare_replicas_every(every));
    for (int64_t step = 0; step < 4; ++step) {
      run.step(rows_of(step, 16 * runtime.rank(), 16));
    }
    if (runtime.rank() == 1) {
      run.trainer->masters()[parameter].second.flatten()[1].add_(0.5);
    }
    std::string message;
    int steps = 0;
    try {
      for (; steps < 100; ++steps) {
        run.step(rows_of(4 + steps, 16 * runtime.rank(), 16));
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::diverged);
      message = error.what();
    }
    EXPECT_THAT(message, ::testing::HasSubstr("replicas have diverged: ranks 0 and 1 hold"));
    EXPECT_LE(steps, every + 3);
  }
}

}  // namespace
}  // namespace lockstep
