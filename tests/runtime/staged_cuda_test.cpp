// Two ranks on one GPU, whose collectives go through the host.
#include <gtest/gtest.h>

#include <cmath>

#include "cuda_runs.h"

namespace lockstep {
namespace {

using testing::DeviceRun;
using testing::rows_of;

TEST(StagedRanksOnCuda, HaveTheLossCurveOfOneRankWithAllRows) {
  Runtime runtime(0, nullptr,
                  RuntimeOptions()
                      .device(DeviceKind::cuda)
                      .share_device(true)
                      .transport(DeviceTransport::staged));
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

}  // namespace
}  // namespace lockstep
