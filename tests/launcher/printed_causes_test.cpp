// What the command says of a job that failed: the cause, once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cause.h"
#include "job_output.h"
#include "launch.h"
#include "rank_table.h"

namespace lockstep::testing {
namespace {

using launcher::JobOutput;
using launcher::RankLine;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// What the command prints of its own: all but the ranks' lines.
std::string summary_of(const std::string& text, int ranks, int code) {
  const Launched result = launch(script({"-n", std::to_string(ranks)}, text));
  EXPECT_EQ(result.code, code);
  return result.error;
}

TEST(PrintedCauses, TheLauncherShowsTheCauseAndNoFrames) {
  const std::string summary = summary_of(
      "echo 'terminate called'; echo '  what():  sizes differ'; echo 'Exception raised from meta "
      "at x.cpp:1 (most recent call first):'; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do echo "
      "\"frame #$i: <unknown function> + 0x2d80 (0x55 in ./prog)\"; done; exit 2",
      1, 2);
  EXPECT_THAT(summary, AllOf(HasSubstr("  | terminate called\n"), HasSubstr("sizes differ"),
                             Not(HasSubstr("frame #")), Not(HasSubstr("Exception raised"))));
}

using Kind = RankLine::Kind;

/// How the ranks ended, after each printed its line.
std::string describe(const std::vector<std::pair<std::string, RankLine>>& ranks) {
  std::ostringstream out;
  JobOutput output(out, out, {});
  launcher::RankTable table(static_cast<int>(ranks.size()));
  for (const auto& [line, status] : ranks) {
    output.add({status.rank, Kind::line, line});
    table.add({status.rank, Kind::word, "u"});
  }
  for (const auto& [line, status] : ranks) {
    table.add(status);
  }
  launcher::JobEnd end;
  end.code = 1;
  const auto cause = launcher::find_cause(table, output, end);
  return cause ? launcher::describe(*cause, table, output) : "";
}

TEST(PrintedCauses, RanksThatSayTheSameAreNamedTogether) {
  EXPECT_EQ(describe({{"rank 0: ranks 0-2: sizes differ", {0, Kind::stopped, "143"}},
                      {"rank 1: ranks 0-2: sizes differ", {1, Kind::status, "2"}},
                      {"rank 2: ranks 0-2: sizes differ", {2, Kind::status, "2"}},
                      {"rank 3: ranks 0-2: sizes differ", {3, Kind::status, "0"}}}),
            "ranks 0-2 ended with exit code 2; the last lines of each:\n  | ranks 0-2: sizes "
            "differ\n");
}

TEST(PrintedCauses, RanksThatSayOtherThingsOrEndOtherwiseAreNotNamedTogether) {
  EXPECT_EQ(describe({{"rank 0: no file 0", {0, Kind::status, "2"}},
                      {"rank 1: no file 1", {1, Kind::status, "2"}}}),
            "rank 0 ended with exit code 2; its last lines:\n  | rank 0: no file 0\n");
  EXPECT_EQ(describe({{"rank 0: no file", {0, Kind::status, "10"}},
                      {"rank 1: no file", {1, Kind::status, "11"}}}),
            "rank 0 ended with exit code 10; its last lines:\n  | rank 0: no file\n");
}

}  // namespace
}  // namespace lockstep::testing
