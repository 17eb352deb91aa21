// What the command says of a job that failed: the cause, once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cause/cause_text.h"
#include "cause/job_output.h"
#include "cause/rank_table.h"
#include "launch.h"

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

struct Ended {
  RankLine status;
  std::string error;  // that it said it ends because of; empty: it said nothing
  std::string line;   // that it printed; empty: nothing
};

/// What is said of ranks that ended so.
std::string describe(const std::vector<Ended>& ranks) {
  std::ostringstream out;
  JobOutput output(out, out, {});
  launcher::RankTable table(static_cast<int>(ranks.size()));
  for (const Ended& each : ranks) {
    const int rank = each.status.rank;
    if (!each.line.empty()) {
      output.add({rank, Kind::line, each.line});
    }
    table.add({rank, Kind::life_sign, "u"});
    if (!each.error.empty()) {
      table.add({rank, Kind::life_sign, "x" + each.error});
    }
  }
  for (const Ended& each : ranks) {
    table.add(each.status);
  }
  launcher::JobEnd end;
  end.code = 1;
  const auto cause = launcher::find_cause(table, end);
  return cause ? launcher::describe(*cause, table, output) : "";
}

TEST(PrintedCauses, RanksThatSayTheSameAreNamedTogether) {
  const std::string error = "2oranks 0-2: sizes differ";
  EXPECT_EQ(
      describe({{{0, Kind::ended_after_request, "143"}, error, "rank 0: ranks 0-2: sizes differ"},
                {{1, Kind::status, "2"}, error, "rank 1: ranks 0-2: sizes differ"},
                {{2, Kind::status, "2"}, error, "rank 2: ranks 0-2: sizes differ"},
                {{3, Kind::status, "0"}, "", "rank 3: ranks 0-2: sizes differ"}}),
      "ranks 0-2 ended with exit code 2; the last lines of each:\n  | ranks 0-2: sizes differ\n");
  EXPECT_EQ(describe({{{0, Kind::status, "2"}, error, "rank 0: other words"},
                      {{1, Kind::status, "2"}, error, "ranks 0-1: sizes differ"}}),
            "ranks 0-1 ended with exit code 2; the last lines of rank 0:\n  | rank 0: other "
            "words\n");
}

TEST(PrintedCauses, AnErrorWhoseLineWasLostIsThatOfTheLifeSign) {
  EXPECT_EQ(describe({{{0, Kind::status, "10"}, "10orank 0: sample 17 is damaged", ""},
                      {{1, Kind::status, "10"},
                       "10srank 0: sample 17 is damaged",
                       "rank 1: rank 0: sample 17 is damaged"}}),
            "ranks 0-1 ended with exit code 10; rank 0 printed nothing, but reported:\n"
            "  | rank 0: sample 17 is damaged\n");
}

TEST(PrintedCauses, RanksThatSayOtherThingsOrEndOtherwiseAreNotNamedTogether) {
  EXPECT_EQ(describe({{{0, Kind::status, "2"}, "2ono file 0", "no file"},
                      {{1, Kind::status, "2"}, "2ono file 1", "no file"}}),
            "rank 0 ended with exit code 2; its last lines:\n  | no file\n");
  EXPECT_EQ(describe({{{0, Kind::status, "10"}, "10ono file", "no file"},
                      {{1, Kind::status, "11"}, "11ono file", "no file"}}),
            "rank 0 ended with exit code 10; its last lines:\n  | no file\n");
  EXPECT_EQ(describe({{{0, Kind::status, "2"}, "2ono file", "no file"},
                      {{1, Kind::status, "2"}, "", "no file"}}),
            "rank 0 ended with exit code 2; its last lines:\n  | no file\n");
}

}  // namespace
}  // namespace lockstep::testing
