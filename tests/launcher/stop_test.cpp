#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/impl/process_mark.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "launch.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

/// Sends `signal` once `times` ranks have printed "ready".
auto when_ready(int signal, size_t times) {
  return [signal, times, sent = false](pid_t pid, const std::string& out) mutable {
    if (!sent && count(out, "ready") == times) {
      kill(pid, signal);
      sent = true;
    }
  };
}

/// A `lockstep run` beside the test, whose standard output nobody reads before end() does.
class Running {
 public:
  explicit Running(const std::vector<std::string>& arguments) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    std::vector<char*> argv = {const_cast<char*>(LOCKSTEP_COMMAND)};
    for (const std::string& argument : arguments) {
      argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
      dup2(ends[1], STDOUT_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    out_ = ends[0];
  }
  ~Running() {
    close(out_);
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void signal(int number) const { kill(pid_, number); }
  void wait_until_the_pipe_is_full() const {
    const int size = fcntl(out_, F_GETPIPE_SZ);
    EXPECT_TRUE(within_a_minute([&] {
      int waiting = 0;
      return ioctl(out_, FIONREAD, &waiting) == 0 && waiting > size - 4096;
    }));
  }
  bool is_suspended() const { return detail::is_stopped(pid_); }
  /// The exit code; -1 after a minute.
  int end() {
    int status = 0;
    if (!within_a_minute([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) {
      return -1;
    }
    pid_ = 0;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  template <typename Holds>
  static bool within_a_minute(const Holds& holds) {
    for (int i = 0; i < 3000; ++i) {
      if (holds()) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }

 private:
  pid_t pid_ = 0;
  int out_ = -1;
};

void wait_for(const std::string& file) {
  EXPECT_TRUE(Running::within_a_minute([&] { return std::ifstream(file).is_open(); })) << file;
}

void make(const std::string& file) {
  std::ofstream made(file);
}

/// An mpirun that waits for the file `go` before it does what is asked for, if `when` holds of its
/// arguments. It makes the file `waits` meanwhile.
std::string slow_mpirun(const Folder& folder, const std::string& when) {
  const std::string path = folder.path() + "/mpirun";
  std::ofstream(path) << "#!/bin/sh\nif [ " << when << " ]; then touch " << folder.path()
                      << "/waits; " << await({folder.path() + "/go"}) << "fi\nexec mpirun \"$@\"\n";
  chmod(path.c_str(), 0755);
  return path;
}

const char* const saves_and_ends =
    "trap 'echo saved; exit 75' USR1; echo ready; while :; do sleep 0.05; done";

TEST(LauncherStop, SigtermLetsEveryRankSaveAndKeepsTheirCode) {
  const Launched result = launch(script({"-n", "2"}, saves_and_ends), when_ready(SIGTERM, 2));
  EXPECT_EQ(result.code, 75);
  EXPECT_THAT(result.out, HasSubstr("[0] saved"));
  EXPECT_THAT(result.out, HasSubstr("[1] saved"));
  EXPECT_THAT(result.error, Not(HasSubstr("ended with exit code")));
}

TEST(LauncherStop, ARankThatDiesWhileItSavesIsNamedAndItsCodeIsTheJobs) {
  for (const std::string name : {"KILL", "SEGV"}) {
    const Launched result = launch(
        script({"-n", "2"}, "trap 'if [ $RANK = 1 ]; then kill -" + name +
                                " $$; fi; exit 20' USR1; echo ready; while :; do sleep 0.05; done"),
        when_ready(SIGTERM, 2));
    EXPECT_EQ(result.code, name == "KILL" ? 137 : 139);
    EXPECT_THAT(result.error, HasSubstr("lockstep: rank 1 was killed by SIG" + name));
    EXPECT_THAT(result.error, Not(HasSubstr("rank 0")));
  }
}

TEST(LauncherStop, ARequestBeforeTheRanksHaveBegunReachesThem) {
  for (const std::string when : {"\"$1\" = --version", "\"$1\" != --version"}) {
    for (const int signal : {SIGTERM, SIGUSR1}) {
      const Folder folder;
      Running job(script({"-n", "2", "--mpirun", slow_mpirun(folder, when)}, saves_and_ends));
      wait_for(folder.path() + "/waits");
      job.signal(signal);
      make(folder.path() + "/go");
      EXPECT_EQ(job.end(), 75) << when << ", signal " << signal;
    }
  }
}

TEST(LauncherStop, AProgramThatStartsGetsTheRequestOnceItHandlesIt) {
  for (const char* ranks : {"1", "2"}) {
    const Folder folder;
    Running job(signing({"-n", ranks}, "sign s; touch " + folder.path() + "/began-$RANK; " +
                                           await({folder.path() + "/go"}) +
                                           "trap 'exit 75' USR1; while :; do sleep 0.05; done"));
    wait_for(folder.path() + "/began-0");
    job.signal(SIGTERM);
    make(folder.path() + "/go");
    EXPECT_EQ(job.end(), 75);
  }
}

TEST(LauncherStop, AProgramThatNeverHandlesTheRequestIsEndedAfterTheGraceTime) {
  const Folder folder;
  Running job(signing({"-n", "1", "--grace", "1"},
                      "sign s; touch " + folder.path() + "/began; while :; do sleep 0.05; done"));
  wait_for(folder.path() + "/began");
  job.signal(SIGTERM);
  EXPECT_EQ(job.end(), 128 + SIGTERM);
}

TEST(LauncherStop, AReaderThatPausesHoldsUpNeitherARequestNorTheReportOfAFailure) {
  const std::string prints = "while :; do echo 0123456789012345678901234567890123456789; done";
  Running asked(script({"-n", "2"}, "trap 'exit 75' USR1; " + prints));
  asked.wait_until_the_pipe_is_full();
  asked.signal(SIGTERM);
  EXPECT_EQ(asked.end(), 75);
  const Folder folder;
  Running failing(script({"-n", "2"}, "if [ $RANK = 1 ]; then " + await({folder.path() + "/go"}) +
                                          "exit 7; fi; " + prints));
  failing.wait_until_the_pipe_is_full();
  make(folder.path() + "/go");
  EXPECT_EQ(failing.end(), 7);
}

TEST(LauncherStop, AReaderThatHasGoneIsToldAndTheJobGoesOn) {
  const Folder folder;
  const std::string path = folder.path() + "/pipe";
  std::ofstream(path) << "set -o pipefail\n"
                      << LOCKSTEP_COMMAND << " run -n 1 -- sh -c 'echo first; "
                      << await({folder.path() + "/gone"}) << "echo second; echo third; exit 3' 2>"
                      << folder.path() << "/error | { read line; exec 0<&-; touch " << folder.path()
                      << "/gone; }\n";
  const int status = std::system(("/bin/bash " + path).c_str());
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_THAT(folder.read("error"), HasSubstr("standard output cannot be written any more"));
}

TEST(LauncherStop, CtrlZSuspendsTheCommandWithItsRanksAndTheyGoOnWithIt) {
  const Folder folder;
  const std::string pid = folder.path() + "/pid.";
  for (const char* ranks : {"1", "2"}) {
    Running job(script({"-n", ranks, "--timeout", "600"},
                       "echo $$ > " + pid + "new.$RANK; mv " + pid + "new.$RANK " + pid +
                           "$RANK; " + await({folder.path() + "/go"}) + "exit 6"));
    std::vector<int> processes;
    for (int rank = 0; rank < std::stoi(ranks); ++rank) {
      wait_for(pid + std::to_string(rank));
      processes.push_back(std::stoi(folder.read("pid." + std::to_string(rank))));
      std::filesystem::remove(pid + std::to_string(rank));
    }
    job.signal(SIGTSTP);
    EXPECT_TRUE(Running::within_a_minute([&] { return job.is_suspended(); }));
    for (const int process : processes) {
      EXPECT_TRUE(Running::within_a_minute([&] { return detail::is_stopped(process); }));
    }
    job.signal(SIGCONT);
    for (const int process : processes) {
      EXPECT_TRUE(Running::within_a_minute([&] { return !detail::is_stopped(process); }));
    }
    make(folder.path() + "/go");
    EXPECT_EQ(job.end(), 6);
    std::filesystem::remove(folder.path() + "/go");
  }
}

TEST(LauncherStop, CtrlCEndsACommandThatRunsNoJob) {
  const Folder folder;
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Running diff({"diff", pipe, pipe});
  const int writer = open(pipe.c_str(), O_WRONLY);  // once it reads
  diff.signal(SIGINT);
  EXPECT_EQ(diff.end(), 128 + SIGINT);
  close(writer);
}

TEST(LauncherStop, ARankThatSaysThatItIsStuckIsEndedAndKeepsItsCode) {
  const Launched result = launch(
      signing({"-n", "1"}, "trap '' TERM; sign s u k20othe-driver; while :; do sleep 0.05; done"));
  EXPECT_EQ(result.code, 20);
  EXPECT_GT(result.seconds, 5.0) << "it had the time to end itself";
}

TEST(LauncherStop, SigintAndSigquitDoTheSame) {
  for (const int signal : {SIGINT, SIGQUIT}) {
    const Launched result = launch(script({"-n", "1"}, saves_and_ends), when_ready(signal, 1));
    EXPECT_EQ(result.code, 75);
    EXPECT_THAT(result.out, HasSubstr("[0] saved"));
  }
}

TEST(LauncherStop, TwoSigintsAtOnceAreOneRequest) {
  bool sent = false;
  const Launched result =
      launch(script({"-n", "2"},
                    "trap 'sleep 1; echo saved; exit 75' USR1; echo ready; while :; do sleep 0.05; "
                    "done"),
             [&](pid_t pid, const std::string& out) {
               if (!sent && count(out, "ready") == 2) {
                 kill(pid, SIGINT);
                 std::this_thread::sleep_for(std::chrono::milliseconds(50));
                 kill(pid, SIGINT);
                 sent = true;
               }
             });
  EXPECT_EQ(result.code, 75);
  EXPECT_EQ(count(result.out, "saved"), 2U);
  EXPECT_THAT(result.error, Not(HasSubstr("asking harder")));
}

TEST(LauncherStop, ProgramsThatKnowNoUsr1EndAndTheCodeNamesTheSignal) {
  EXPECT_EQ(launch(script({"-n", "2"}, "echo ready; exec sleep 600"), when_ready(SIGINT, 2)).code,
            128 + SIGINT);
  EXPECT_EQ(launch(script({"-n", "1"}, "echo ready; exec sleep 600"), when_ready(SIGTERM, 1)).code,
            128 + SIGTERM);
}

TEST(LauncherStop, ARankThatKnowsNoUsr1BesideOthersThatDoIsNamed) {
  const Launched result =
      launch(script({"-n", "2"},
                    "if [ $RANK = 1 ]; then trap 'sleep 60' USR1; fi; echo ready; "
                    "while :; do sleep 0.05; done"),
             when_ready(SIGTERM, 2));
  EXPECT_THAT(result.error, HasSubstr("rank 0 was ended by SIGUSR1"));
  EXPECT_THAT(
      launch(script({"-n", "2"}, "echo ready; exec sleep 600"), when_ready(SIGTERM, 2)).error,
      Not(HasSubstr("was ended by SIGUSR1")));
}

TEST(LauncherStop, RanksThatSavedAreNotStartedAgainWhetherTheLauncherOrARankWasAsked) {
  for (const size_t ranks : {1, 2}) {
    const std::vector<std::string> options = {"-n", std::to_string(ranks), "--max-restarts",
                                              "9",  "--min-ranks",         "1"};
    for (const int signal : {SIGTERM, SIGUSR1}) {
      const Launched asked = launch(script(options, saves_and_ends), when_ready(signal, ranks));
      EXPECT_EQ(asked.code, 75);
      EXPECT_THAT(asked.error, Not(HasSubstr("starting the job again")));
    }
    const Launched direct = launch(script(
        options,
        "trap 'exit 75' USR1; [ $RANK = 0 ] && kill -USR1 $$; while :; do sleep 0.05; done"));
    EXPECT_EQ(direct.code, 75);
    EXPECT_THAT(direct.error, AllOf(HasSubstr("rank 0 ended with exit code 75"),
                                    HasSubstr("not started again: the job was preempted"),
                                    Not(HasSubstr("starting the job again"))));
  }
}

TEST(LauncherStop, ARankThatHangsAfterAnotherHasSavedChangesNothing) {
  const Launched result = launch(
      script({"-n", "2"},
             "if [ $RANK = 0 ]; then trap 'exit 75' USR1; else trap '' USR1 TERM; fi; echo ready; "
             "while :; do sleep 0.05; done"),
      when_ready(SIGTERM, 2));
  EXPECT_EQ(result.code, 75);
}

TEST(LauncherStop, Sigusr1ThatEndsTheRanksIsARequestToo) {
  const Launched result =
      launch(script({"-n", "1", "--max-restarts", "9"}, "echo ready; exec sleep 600"),
             when_ready(SIGUSR1, 1));
  EXPECT_EQ(result.code, 128 + SIGUSR1);
  EXPECT_THAT(result.error, Not(HasSubstr("starting the job again")));
}

TEST(LauncherStop, Sigusr2BelongsToTheProgramAndARankThatItKillsHasFailed) {
  for (const size_t ranks : {1, 2}) {
    const Launched result =
        launch(script({"-n", std::to_string(ranks)}, "echo ready; exec sleep 600"),
               when_ready(SIGUSR2, ranks));
    EXPECT_EQ(result.code, 128 + SIGUSR2);
    EXPECT_THAT(result.error, AllOf(HasSubstr("killed by SIGUSR2"), HasSubstr("  | ready\n")));
  }
}

TEST(LauncherStop, AProgramThatHeardSigusr2FailsAsAnyOther) {
  const Launched result =
      launch(script({"-n", "1"}, "trap 'exit 7' USR2; echo ready; while :; do sleep 0.05; done"),
             when_ready(SIGUSR2, 1));
  EXPECT_EQ(result.code, 7);
  EXPECT_THAT(result.error, HasSubstr("rank 0 ended with exit code 7"));
}

TEST(LauncherStop, Sigusr2BeforeRanksHaveBegunDoesNotEndMpirun) {
  const Folder folder;
  const std::string mpirun = folder.path() + "/mpirun";
  // Goes on when the launcher has taken the signal: bit 11 of those that wait for it.
  std::ofstream(mpirun) << R"(#!/bin/bash
waiting() { awk '/^ShdPnd/ { print $2 }' /proc/$PPID/status; }
if [ "$1" != --version ]; then
  kill -USR2 $PPID
  while [ $((0x$(waiting) & 0x800)) != 0 ]; do sleep 0.02; done
fi
exec mpirun "$@"
)";
  chmod(mpirun.c_str(), 0755);
  const Launched result = launch(script({"-n", "2", "--mpirun", mpirun}, "echo began $RANK"));
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.out, AllOf(HasSubstr("[0] began 0"), HasSubstr("[1] began 1")));
}

TEST(LauncherStop, RanksThatDoNotListenAreEndedAfterTheGraceTime) {
  const std::string word = unique_word();
  for (const std::string ranks : {"1", "2"}) {
    const Launched result = launch(
        script({"-n", ranks, "--grace", "1"}, "trap '' USR1; trap 'exit 9' TERM; echo ready; : " +
                                                  word + "; while :; do sleep 0.05; done"),
        when_ready(SIGTERM, ranks == "1" ? 1 : 2));
    EXPECT_NE(result.code, 0);
    EXPECT_GE(result.seconds, 1.0);
    EXPECT_TRUE(all_gone(word));
  }
}

TEST(LauncherStop, RanksThatIgnoreEverythingAreKilled) {
  const std::string word = unique_word();
  const Launched result =
      launch(script({"-n", "2", "--grace", "0"}, "trap '' USR1 TERM INT; echo ready; : " + word +
                                                     "; while :; do sleep 0.05; done"),
             when_ready(SIGTERM, 2));
  EXPECT_EQ(result.code, 128 + SIGTERM);
  EXPECT_THAT(result.error, HasSubstr("not saved is lost; --grace SECONDS gives them longer"));
  EXPECT_TRUE(all_gone(word));
}

TEST(LauncherStop, NothingSurvivesWhenTheCommandItselfIsKilled) {
  const std::string word = unique_word();
  for (const std::string ranks : {"1", "2"}) {
    const Launched result =
        launch(script({"-n", ranks}, "trap '' TERM USR1 HUP; echo ready; : " + word +
                                         "; while :; do sleep 0.05; done"),
               when_ready(SIGKILL, ranks == "1" ? 1 : 2));
    EXPECT_EQ(result.code, 137);
    EXPECT_TRUE(all_gone(word));
  }
}

}  // namespace
}  // namespace lockstep::testing
