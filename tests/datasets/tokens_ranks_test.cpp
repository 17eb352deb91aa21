// Several ranks that get shards of tokens from one call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/inputs/token_shards.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "collectives/thread_ranks.h"
#include "test_names.h"
#include "written_by_python.h"

namespace lockstep {
namespace {

std::vector<int64_t> bytes_of(const std::string& line) {
  return {line.begin(), line.end()};
}

TEST(TokenShardsOfRanks, AreWrittenByRankZeroAndReadByAll) {
  for (const int ranks : {1, 2, 3}) {
    const TemporaryFolder folder;
    std::ofstream(folder.file("1.txt")) << "abc\nde\n";
    std::atomic<int> lines{0};
    run_ranks(ranks, [&](Communicator& hosts) {
      const auto paths = write_token_shards(
          hosts, {folder.file("1.txt")}, folder.file("shard"),
          [&](const std::string& line) {
            EXPECT_EQ(hosts.rank(), 0);
            ++lines;
            return bytes_of(line);
          },
          /*token_bytes=*/4, /*tokens_per_shard=*/4);
      EXPECT_THAT(paths,
                  ElementsAre(folder.file("shard-00000.bin"), folder.file("shard-00001.bin")));
      EXPECT_EQ(TokenShards(paths, TokenShardOptions().window(2).token_bytes(4)).tokens(), 7);
    });
    EXPECT_EQ(lines, 2);
  }
}

TEST(TokenShardsOfRanks, ThatCannotBeWrittenAreTheSameErrorOnEveryRank) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("1.txt")) << "a\nb\n";
  const auto expect_error = [&](const std::string& text, const std::string& expected,
                                const std::function<std::vector<int64_t>(const std::string&)>& f) {
    const auto ended = outcomes(3, [&](Communicator& hosts) {
      write_token_shards(hosts, {folder.file(text)}, folder.file("s"), f);
    });
    for (const RankOutcome& rank : ended) {
      EXPECT_EQ(rank.kind, RankOutcome::Kind::error);
      EXPECT_EQ(rank.message, ended[0].message);
      EXPECT_THAT(rank.message, AllOf(HasSubstr("rank 0: "), HasSubstr(expected)));
    }
  };
  expect_error("none.txt", "none.txt: cannot be opened", bytes_of);
  expect_error("1.txt", "line 1: token -1 does not fit in 2 bytes",
               [](const std::string&) { return std::vector<int64_t>{-1}; });
  expect_error("1.txt", "no such vocabulary", [](const std::string&) -> std::vector<int64_t> {
    throw std::runtime_error("no such vocabulary");
  });
}

TEST(TokenShardsOfRanks, OfManyLinesTellTheOtherRanksThatTheyGoOn) {
  const TemporaryFolder folder;
  std::ofstream text(folder.file("1.txt"));
  for (int line = 0; line < 2500; ++line) {
    text << "a\n";
  }
  text.close();
  run_ranks(2, [&](Communicator& hosts) {
    write_token_shards(hosts, {folder.file("1.txt")}, folder.file("s"), bytes_of);
    std::istringstream log(hosts.collective_log());
    int signs = 0;
    for (std::string call; std::getline(log, call);) {
      signs += call.find("all_reduce") != std::string::npos ? 1 : 0;
    }
    EXPECT_GE(signs, 3) << "after 1000 and 2000 lines, and at the end";
  });
}

}  // namespace
}  // namespace lockstep
