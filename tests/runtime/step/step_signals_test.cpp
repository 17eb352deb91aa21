// A signal to one rank, as Slurm and lockstep run send them to all.
#include <gtest/gtest.h>
#include <lockstep/runtime/trainer.h>

#include <unistd.h>

#include <csignal>
#include <thread>

#include "runtime/models.h"
#include "test_device.h"
#include "test_names.h"
#include "test_runtime.h"

namespace lockstep {
namespace {

TEST(StepRules, AStopSignalToOneRankIsSeenByAllRanksAtTheSameUpdate) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().accumulate(2));
  trainer.stop_on_signals();
  for (int64_t step = 0; step < 8; ++step) {
    if (step == 4 && runtime().rank() == 1) {
      std::thread([] { kill(getpid(), SIGTERM); }).join();
    }
    trainer.step([&] { return model->forward(ones({3, 4})).square().mean(); });
    const bool between_windows = step % 2 == 1;
    ASSERT_EQ(trainer.stop_requested(), between_windows && step >= 5) << step;
  }
}

TEST(StopRequests, ASignalIsNotLostWhenOtherSignalsAreAskedFor) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  trainer.stop_on_signals();
  kill(getpid(), SIGTERM);
  trainer.stop_on_signals({SIGUSR2});
  trainer.step([&] { return model->forward(ones({3, 4})).square().mean(); });
  EXPECT_TRUE(trainer.stop_requested());
}

void (*handler_of(int signal))(int) {
  struct sigaction action = {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

TEST(StepRules, StopSignalsActAsBeforeOnceTheTrainerIsGone) {
  const auto before = handler_of(SIGUSR1);  // MPICH has one
  {
    Trainer trainer(runtime(), std::make_shared<Mlp>(), SGD(0.1));
    trainer.stop_on_signals({SIGUSR1});
    EXPECT_NE(handler_of(SIGUSR1), before);
  }
  EXPECT_EQ(handler_of(SIGUSR1), before);
}

}  // namespace
}  // namespace lockstep
