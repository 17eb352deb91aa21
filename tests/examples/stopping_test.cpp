// A training run that is asked to end: Ctrl-C, and the SIGTERM of a batch system.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "launcher/launch.h"
#include "test_names.h"

namespace lockstep::testing {
namespace {

/// Trains for ever, until `signal` is sent to the lockstep command after the first update.
Launched stopped_by(int signal, const std::string& ranks, const std::string& snapshots) {
  return launch({"run", "-n", ranks, "--", FASHION_MNIST, "--synthetic", "--epochs", "1000000",
                 "--snapshots", snapshots},
                [signal, sent = false](pid_t pid, const std::string& out) mutable {
                  if (!sent && out.find(" it/s") != std::string::npos) {
                    kill(pid, signal);
                    sent = true;
                  }
                });
}

TEST(Stopping, ARunSavesEndsWithCode75AndGoesOnWhenStartedAgain) {
  for (const std::string ranks : {"1", "2"}) {
    const Folder folder;
    const Launched first = stopped_by(SIGINT, ranks, folder.path());
    EXPECT_EQ(first.code, 75) << first.out << first.error;
    EXPECT_THAT(first.out, Not(HasSubstr("resumed at update")));

    const Launched second = stopped_by(SIGTERM, ranks, folder.path());
    EXPECT_EQ(second.code, 75) << second.out << second.error;
    EXPECT_THAT(second.out, HasSubstr("resumed at update"));
    EXPECT_THAT(second.out, HasSubstr(folder.path() + "/step-"));
  }
}

}  // namespace
}  // namespace lockstep::testing
