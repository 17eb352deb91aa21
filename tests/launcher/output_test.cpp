#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "launch.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

TEST(LauncherOutput, EachStreamOfAllRanksIsMergedAndTagged) {
  const Launched result = launch(script({"-n", "2"}, "echo out $RANK; echo error $RANK >&2"));
  EXPECT_EQ(result.code, 0);
  std::vector<std::string> lines = lines_of(result.out);
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, (std::vector<std::string>{"[0] out 0", "[1] out 1"}));
  EXPECT_THAT(result.error, HasSubstr("[0] error 0\n"));
  EXPECT_THAT(result.error, HasSubstr("[1] error 1\n"));
}

TEST(LauncherOutput, TagsCanBeSwitchedOff) {
  EXPECT_EQ(launch(script({"-n", "1", "--no-tag"}, "echo plain")).out, "plain\n");
}

TEST(LauncherOutput, EachRankHasItsLogFile) {
  const Folder folder;
  const std::string logs = folder.path() + "/deep/logs";
  const Launched result =
      launch(script({"-n", "3", "--log-dir", logs}, "echo first $RANK; echo second $RANK >&2"));
  EXPECT_EQ(result.code, 0);
  for (const std::string rank : {"0", "1", "2"}) {
    const std::string log = folder.read("deep/logs/rank-" + rank + ".log");
    EXPECT_THAT(log, HasSubstr("first " + rank + "\n"));
    EXPECT_THAT(log, HasSubstr("second " + rank + "\n"));
    EXPECT_EQ(lines_of(log).size(), 2U);
  }
}

TEST(LauncherOutput, ALogFolderThatCannotBeMadeEndsWithCode3) {
  const Launched result = launch(script({"-n", "1", "--log-dir", "/dev/null/logs"}, "echo no"));
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.error, HasSubstr("/dev/null/logs"));
  EXPECT_EQ(result.out, "");
}

TEST(LauncherOutput, NoLineOfABusyJobIsTornOrLost) {
  const Launched result =
      launch(script({"-n", "2"},
                    "i=0; while [ $i -lt 2000 ]; do echo rank $RANK line $i; i=$((i+1)); "
                    "done"));
  EXPECT_EQ(result.code, 0);
  std::vector<int> next = {0, 0};
  for (const std::string& line : lines_of(result.out)) {
    const int rank = line[1] - '0';
    ASSERT_TRUE(rank == 0 || rank == 1) << line;
    const std::string tag = std::to_string(rank);
    ASSERT_EQ(line, "[" + tag + "] rank " + tag + " line " + std::to_string(next[rank]++));
  }
  EXPECT_EQ(next, (std::vector<int>{2000, 2000}));
}

TEST(LauncherOutput, ALongLineStaysOne) {
  const Launched result =
      launch(script({"-n", "2"}, "head -c 10000 /dev/zero | tr '\\0' $RANK; echo"));
  std::vector<std::string> lines = lines_of(result.out);
  std::sort(lines.begin(), lines.end());
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(lines[0] == "[0] " + std::string(10000, '0'));
  EXPECT_TRUE(lines[1] == "[1] " + std::string(10000, '1'));
}

TEST(LauncherOutput, ALineOfMoreThanAMegabyteIsShownInPieces) {
  const Launched result = launch(script({"-n", "1"}, "head -c 3000000 /dev/zero | tr '\\0' x"));
  size_t letters = 0;
  for (const std::string& line : lines_of(result.out)) {
    EXPECT_THAT(line.substr(0, 5), "[0] x");
    EXPECT_LT(line.size(), 1100000U);
    letters += line.size() - 4;
  }
  EXPECT_EQ(letters, 3000000U);
}

TEST(LauncherOutput, TextWithoutALineEndIsNotLost) {
  EXPECT_EQ(launch(script({"-n", "1"}, "printf end")).out, "[0] end\n");
}

TEST(LauncherOutput, RedrawnLinesShowOnlyTheirLastStateInAFile) {
  EXPECT_EQ(launch(script({"-n", "1"}, "printf '\\r10%%\\r20%%\\r30%%\\n'")).out, "[0] 30%\n");
}

TEST(LauncherOutput, ProgramsAreToldToPrintPlainProgressIntoAPipe) {
  EXPECT_EQ(launch(script({"-n", "1"}, "echo $LOCKSTEP_PROGRESS")).out, "[0] plain\n");
}

TEST(LauncherOutput, ArgumentsArriveUnchanged) {
  const Launched result =
      launch({"run", "-n", "2", "--no-tag", "--", "/bin/sh", "-c", "printf '<%s>\\n' \"$@\"", "sh",
              "a b", "$HOME", "'*'", "--help"});
  EXPECT_THAT(result.out, HasSubstr("<a b>\n"));
  EXPECT_THAT(result.out, HasSubstr("<$HOME>\n"));
  EXPECT_THAT(result.out, HasSubstr("<'*'>\n"));
  EXPECT_THAT(result.out, HasSubstr("<--help>\n"));
}

}  // namespace
}  // namespace lockstep::testing
