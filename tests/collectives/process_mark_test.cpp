// Processes that live, have ended, or are of another machine or container.
#include <gtest/gtest.h>
#include <lockstep/collectives/impl/process_mark.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "test_names.h"

namespace lockstep::detail {
namespace {

ProcessMark own() {
  return mark_of(getpid()).value();
}

TEST(ProcessMark, IsThatOfALivingProcess) {
  EXPECT_EQ(life_of(own()), Life::alive);
  EXPECT_EQ(life_of(mark_of(1).value()), Life::alive);
  EXPECT_EQ(mark_of(999999999).has_value(), false);
}

TEST(ProcessMark, IsReadAsItIsWritten) {
  const std::string text = to_text(own());
  EXPECT_EQ(text, own_mark());
  EXPECT_EQ(to_text(parse_process_mark(text).value()), text);
  for (const std::string& other :
       {std::string(), "x" + text, text + "x", text + "-", text + " ", text.substr(1),
        text.substr(0, text.rfind('-')), text.substr(0, text.rfind('-') + 1)}) {
    EXPECT_FALSE(parse_process_mark(other).has_value()) << other;
  }
  const std::string boot(32, 'a');
  EXPECT_TRUE(parse_process_mark(boot + "-1-2-3").has_value());
  for (const char* end : {"-1-0-3", "-1--2-3", "-01-2-3", "-1-02-3", "-1-2-03", "-1-2", "-1-2-3-4",
                          "-1-2147483648-3", "-18446744073709551616-2-3", "--2-3"}) {
    EXPECT_FALSE(parse_process_mark(boot + end).has_value()) << end;
  }
  EXPECT_FALSE(parse_process_mark(std::string(32, 'A') + "-1-2-3").has_value());
}

TEST(ProcessMark, OfAnEndedProcessIsDeadAlsoBeforeItsParentNotices) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
  }
  const ProcessMark mark = mark_of(child).value();
  EXPECT_EQ(life_of(mark), Life::alive);
  kill(child, SIGKILL);
  siginfo_t info = {};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(life_of(mark), Life::dead);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(life_of(mark), Life::dead);
}

TEST(ProcessMark, AStoppedProcessIsToldFromOneThatWaits) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (;;) {
      pause();
    }
  }
  EXPECT_FALSE(is_stopped(child));
  kill(child, SIGSTOP);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(is_stopped(child));
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(is_stopped(child));
  EXPECT_FALSE(is_stopped(0));
}

TEST(ProcessMark, OfAnEarlierProcessWithTheSameNumberIsDead) {
  ProcessMark earlier = own();
  earlier.start -= 1;
  EXPECT_EQ(life_of(earlier), Life::dead);
}

TEST(ProcessMark, OfAnotherMachineOrNamespaceIsUnseen) {
  ProcessMark elsewhere = own();
  elsewhere.name_space += 1;
  EXPECT_EQ(life_of(elsewhere), Life::unseen);
  elsewhere = own();
  elsewhere.boot = std::string(32, '0');
  EXPECT_EQ(life_of(elsewhere), Life::unseen);
}

TEST(ProcessMark, IsUnknownWithoutProc) {
  EXPECT_FALSE(mark_of(getpid(), "/nowhere").has_value());
  EXPECT_EQ(life_of(own(), "/nowhere"), Life::unseen);
}

}  // namespace
}  // namespace lockstep::detail
