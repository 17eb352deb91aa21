// A signal to one rank, as Slurm and lockstep run send them to all.
#include <gtest/gtest.h>
#include <lockstep/runtime/trainer.h>

#include <csignal>
#include <thread>

#include "models.h"
#include "test_device.h"
#include "test_runtime.h"

namespace lockstep {
namespace {

using testing::Mlp;
using testing::ones;
using testing::runtime;

TEST(StepRules, AStopSignalToOneRankIsSeenByAllRanksAtTheSameUpdate) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().accumulate(2));
  trainer.stop_on_signals();
  for (int64_t step = 0; step < 8; ++step) {
    if (step == 4 && runtime().rank() == 1) {
      std::thread([] { std::raise(SIGTERM); }).join();
    }
    trainer.step([&] { return model->forward(ones({3, 4})).square().mean(); });
    ASSERT_EQ(trainer.stop_requested(), step >= 5) << step;
  }
}

TEST(StepRules, StopSignalsActAsBeforeOnceTheTrainerIsGone) {
  struct sigaction action = {};
  {
    Trainer trainer(runtime(), std::make_shared<Mlp>(), SGD(0.1));
    trainer.stop_on_signals({SIGUSR1});
    sigaction(SIGUSR1, nullptr, &action);
    EXPECT_NE(action.sa_handler, SIG_DFL);
  }
  sigaction(SIGUSR1, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace lockstep
