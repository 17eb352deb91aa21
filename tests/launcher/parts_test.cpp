#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "job/deadlines.h"
#include "job/queued_writer.h"
#include "rank/line_splitter.h"
#include "rank/rank_line.h"
#include "rank/stop_ladder.h"
#include "start/shell_quote.h"

namespace lockstep::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::MatchesRegex;
using ::testing::Pair;
using ::testing::StartsWith;
using Lines = std::vector<std::pair<std::string, char>>;

Lines split(const std::vector<std::string>& pieces) {
  LineSplitter splitter;
  Lines lines;
  const auto keep = [&](const std::string& text, char end) { lines.emplace_back(text, end); };
  for (const std::string& piece : pieces) {
    splitter.add(piece, keep);
  }
  splitter.finish(keep);
  return lines;
}

TEST(LineSplitter, JoinsPiecesIntoLines) {
  EXPECT_THAT(split({"on", "e\ntwo\n", "thr", "ee"}),
              ElementsAre(Pair("one", '\n'), Pair("two", '\n'), Pair("three", '\n')));
}

TEST(LineSplitter, KeepsEmptyLines) {
  EXPECT_THAT(split({"\n\na\n"}), ElementsAre(Pair("", '\n'), Pair("", '\n'), Pair("a", '\n')));
}

TEST(LineSplitter, TextBeforeACarriageReturnIsRedrawn) {
  EXPECT_THAT(split({"\r10%", "\r2", "0%\r\n"}), ElementsAre(Pair("10%", '\r'), Pair("20%", '\n')));
}

TEST(LineSplitter, HandsOnLongLinesInParts) {
  const Lines lines = split({std::string(5000, 'x') + "\n"});
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].second, '+');
  EXPECT_EQ(lines[2].second, '\n');
  EXPECT_EQ(lines[0].first.size() + lines[1].first.size() + lines[2].first.size(), 5000U);
}

TEST(QueuedWriter, WritesInOrderAndSaysHowManyLinesDidNotFit) {
  signal(SIGPIPE, SIG_IGN);  // as in the launcher
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int room = fcntl(ends[1], F_SETPIPE_SZ, 4096);
  ASSERT_GE(room, 4096);
  QueuedWriter writer(ends[1], "the pipe", /*limit=*/static_cast<size_t>(room) + 300);
  const std::string fills(static_cast<size_t>(room) + 100, 'x');
  writer.add(fills + "\n");  // more than the pipe holds: the thread waits for the reader
  writer.add("fits\n");
  for (int i = 0; i < 3; ++i) {
    writer.add(std::string(300, 'y') + "\nz\n");
  }
  EXPECT_FALSE(writer.wait(std::chrono::milliseconds(0)));
  std::string text;
  const auto read_all = [&](size_t size) {
    while (text.size() < size) {
      char bytes[4096];
      const ssize_t count = read(ends[0], bytes, sizeof bytes);
      ASSERT_GT(count, 0);
      text.append(bytes, static_cast<size_t>(count));
    }
  };
  read_all(fills.size() + 6);
  EXPECT_TRUE(writer.wait(std::chrono::seconds(30)));
  writer.add("after\n");
  const std::string note =
      "lockstep: 6 lines are left out here: who reads the pipe is too slow\nafter\n";
  read_all(fills.size() + 6 + note.size());
  EXPECT_EQ(text, fills + "\nfits\n" + note);
  close(ends[0]);
  writer.add("nobody reads this\n");
  EXPECT_TRUE(writer.wait(std::chrono::seconds(30)));
  EXPECT_THAT(writer.problem(), MatchesRegex("Broken pipe"));
  close(ends[1]);
}

TEST(RankLine, ComesBackFromItsEncoding) {
  const std::string text = encode({12, RankLine::Kind::redraw, "5 of 7"});
  EXPECT_EQ(text.back(), '\n');
  const auto line = decode(text.substr(0, text.size() - 1));
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->rank, 12);
  EXPECT_EQ(line->kind, RankLine::Kind::redraw);
  EXPECT_EQ(line->text, "5 of 7");
}

TEST(RankLine, KeepsBytesThatAreNoText) {
  const std::string bytes("a\0b\xff", 4);
  const std::string text = encode({0, RankLine::Kind::line, bytes});
  EXPECT_EQ(decode(text.substr(0, text.size() - 1))->text, bytes);
}

TEST(RankLine, OtherTextIsNone) {
  EXPECT_FALSE(decode("").has_value());
  EXPECT_FALSE(decode("mpirun noticed").has_value());
  EXPECT_FALSE(decode("\x1e").has_value());
  EXPECT_FALSE(decode("\x1e"
                      "7")
                   .has_value());
}

TEST(StopLadder, EachRequestSendsTheNextSignal) {
  StopLadder ladder({{1, std::chrono::hours(1)}, {2, std::chrono::hours(1)}});
  std::vector<int> sent;
  const auto send = [&](int signal) { sent.push_back(signal); };
  EXPECT_TRUE(ladder.ask(15, send));
  EXPECT_TRUE(ladder.ask(2, send));
  EXPECT_THAT(sent, ElementsAre(1, 2));
  EXPECT_EQ(ladder.asked(), 15);
}

TEST(StopLadder, TwoRequestsWithinTheGivenTimeAreOne) {
  StopLadder ladder({{1, std::chrono::hours(1)}, {2, std::chrono::hours(1)}},
                    /*same_request=*/std::chrono::hours(1));
  std::vector<int> sent;
  const auto send = [&](int signal) { sent.push_back(signal); };
  EXPECT_TRUE(ladder.ask(2, send));
  EXPECT_FALSE(ladder.ask(2, send));
  EXPECT_THAT(sent, ElementsAre(1));
}

TEST(ShellQuote, QuotesWhatAShellWouldChange) {
  EXPECT_EQ(shell_quote({"a", "b c", "", "$x", "it's", "x=1,2"}),
            "a 'b c' '' '$x' 'it'\\''s' x=1,2");
}

/// A job of three ranks that names late ranks at once.
class DeadlinesOfAJob : public ::testing::Test {
 protected:
  DeadlinesOfAJob() { options.report_seconds = 0; }
  void begin(int rank) { table.add({rank, RankLine::Kind::began, "17 host"}); }
  void sign(int rank, const std::vector<std::string>& words) {
    begin(rank);
    for (const std::string& word : words) {
      table.add({rank, RankLine::Kind::life_sign, word});
    }
  }
  RunOptions options;
  RankTable table{3};
  Deadlines deadlines{options};
};

TEST_F(DeadlinesOfAJob, NameTheRankThatOthersWaitForAtTheStart) {
  sign(0, {"s"});
  begin(1);
  sign(2, {"s"});
  const auto finding = deadlines.look(table);
  ASSERT_TRUE(finding.has_value());
  EXPECT_THAT(finding->text,
              MatchesRegex("rank 1 has not made its runtime for [0-9]+ s; ranks 0, 2 wait"));
  EXPECT_FALSE(finding->is_overdue);
}

TEST_F(DeadlinesOfAJob, NameTheRanksThatMpirunHasNotStarted) {
  EXPECT_THAT(deadlines.look(table)->text,
              StartsWith("ranks 0-2 have not been started by mpirun for "));
  sign(1, {"s"});
  EXPECT_THAT(deadlines.look(table)->text, StartsWith("ranks 0, 2 have not been started"));
  begin(0);
  begin(2);
  EXPECT_THAT(deadlines.look(table)->text, StartsWith("ranks 0, 2 have not made their runtime"));
}

TEST_F(DeadlinesOfAJob, SayNothingOfProgramsThatMakeNoRuntime) {
  for (const int rank : {0, 1, 2}) {
    begin(rank);
  }
  EXPECT_FALSE(deadlines.look(table).has_value());
}

TEST_F(DeadlinesOfAJob, SayNothingOfRanksThatTrainHoweverLong) {
  for (const int rank : {0, 1, 2}) {
    sign(rank, {"s", "u"});
  }
  EXPECT_FALSE(deadlines.look(table).has_value());
  EXPECT_FALSE(deadlines.next().has_value());
  sign(1, {"l"});
  EXPECT_TRUE(deadlines.look(table).has_value());
}

}  // namespace
}  // namespace lockstep::launcher
