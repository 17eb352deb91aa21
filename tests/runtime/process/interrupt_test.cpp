// Ctrl-C in a program that no launcher started.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/trainer.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "runtime/models.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// Trains until asked to stop, and saves into `folder`; is interrupted `times` times while it
/// computes the first loss.
int train(const std::string& folder, int times) {
  return run(0, nullptr, [&](Runtime& runtime) {
    const auto model = std::make_shared<Mlp>();
    Trainer trainer(runtime, model, SGD(0.1));
    trainer.resume(folder);
    trainer.stop_on_signals();
    while (!trainer.stop_requested()) {
      trainer.step([&] {
        for (; times > 0; --times) {
          kill(getpid(), SIGINT);
          for (struct sigaction now = {};
               sigaction(SIGINT, nullptr, &now) == 0 && now.sa_handler != SIG_DFL;) {
            std::this_thread::yield();
          }
        }
        return model->forward(ones({3, 4})).square().mean();
      });
    }
    trainer.save_and_leave();
  });
}

class Interrupt : public ::testing::Test {
 protected:
  Interrupt() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    std::filesystem::remove_all(folder_);
  }
  ~Interrupt() override { std::filesystem::remove_all(folder_); }

  bool has_snapshot() const {
    const std::filesystem::directory_iterator entries(folder_);
    return std::any_of(begin(entries), end(entries), [](const auto& entry) {
      return entry.path().filename().string().rfind("step-", 0) == 0;
    });
  }

  // The child process of a death test has the same one.
  const std::string folder_ = ::testing::TempDir() + "lockstep_interrupt_" +
                              ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(Interrupt, OfAProgramWithoutALauncherSavesAndEndsWith75) {
  EXPECT_EXIT(std::_Exit(train(folder_, 1)), ::testing::ExitedWithCode(75),
              "its snapshot is saved");
  EXPECT_TRUE(has_snapshot());
}

TEST_F(Interrupt, ASecondTimeEndsTheProgramAtOnce) {
  EXPECT_EXIT(std::_Exit(train(folder_, 2)), ::testing::KilledBySignal(SIGINT), "");
  EXPECT_FALSE(has_snapshot());
}

}  // namespace
}  // namespace lockstep
