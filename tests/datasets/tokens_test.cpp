#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/inputs/token_shards.h>

#include <filesystem>
#include <fstream>

#include "error_of.h"
#include "runtime/data_error.h"
#include "test_names.h"
#include "written_by_python.h"

namespace lockstep {
namespace {

std::vector<int64_t> bytes_of(const std::string& line) {
  return {line.begin(), line.end()};
}

TEST(TokenShards, AWindowHasTheTokensThatFollowAsTargets) {
  const WrittenByPython folder("tokens");  // a: 100 to 120, b: 0 to 6
  const TokenShards text({folder.file("a.bin"), folder.file("b.bin")},
                         TokenShardOptions().window(5));
  EXPECT_EQ(text.tokens(), 28);
  ASSERT_EQ(text.size(), 5U) << "four of a, of which the last token is only a target, one of b";
  for (size_t i = 0; i < text.size(); ++i) {
    const auto [tokens, targets] = text.get(i);
    const int64_t first = i < 4 ? 100 + 5 * static_cast<int64_t>(i) : 0;
    EXPECT_TRUE(at::equal(tokens, at::arange(first, first + 5))) << i;
    EXPECT_TRUE(at::equal(targets, at::arange(first + 1, first + 6))) << i;
  }
  EXPECT_THAT(error_of([&] { text.get(5); }), HasSubstr("there is no window 5, there are 5"));
}

TEST(TokenShards, WindowsMayOverlapOrHaveGaps) {
  const WrittenByPython folder("tokens");
  const TokenShards overlapping({folder.file("b.bin")}, TokenShardOptions().window(4).stride(1));
  ASSERT_EQ(overlapping.size(), 3U);
  EXPECT_TRUE(at::equal(overlapping.get(2).second, at::arange(3, 7)));
  const TokenShards gaps({folder.file("a.bin")}, TokenShardOptions().window(2).stride(6));
  ASSERT_EQ(gaps.size(), 4U);
  EXPECT_TRUE(at::equal(gaps.get(3).second, at::arange(119, 121)));
}

TEST(TokenShards, ReadsWideTokens) {
  const WrittenByPython folder("tokens");
  const TokenShards text({folder.file("wide.bin")}, TokenShardOptions().window(3).token_bytes(4));
  EXPECT_TRUE(at::equal(text.get(0).first, at::tensor({5L, 70000L, 4'000'000'000L})));
  EXPECT_TRUE(at::equal(text.get(0).second, at::tensor({70000L, 4'000'000'000L, 1L})));
}

TEST(TokenShards, RefusesATokenBehindTheVocabularyWithItsOffset) {
  const WrittenByPython folder("tokens");
  const TokenShards text({folder.file("a.bin")}, TokenShardOptions().window(5).vocabulary(112));
  text.get(0);
  EXPECT_THAT(data_error([&] { text.get(2); }),
              HasSubstr("a.bin, byte 24: token 112, expected one below 112"));
}

TEST(TokenShards, RefusesFilesWithoutAWindow) {
  const WrittenByPython folder("tokens");
  const auto message = [&](const std::string& name, const TokenShardOptions& options) {
    return data_error([&] { TokenShards({folder.file(name)}, options); });
  };
  EXPECT_THAT(message("b.bin", TokenShardOptions().window(7)), HasSubstr("a window of 7 tokens"));
  EXPECT_THAT(message("none", {}), HasSubstr("cannot be opened"));
  EXPECT_THAT(message("b.bin", TokenShardOptions().token_bytes(4)),
              HasSubstr("byte 14: the file ends in the middle of a token of 4 bytes"));
  EXPECT_THAT(data_error([] { TokenShards({}); }), HasSubstr("no file was given"));
  EXPECT_THAT(error_of([] { TokenShards({"a"}, TokenShardOptions().window(0)); }),
              HasSubstr("window is 0"));
  EXPECT_THAT(error_of([] { TokenShards({"a"}, TokenShardOptions().stride(-1)); }),
              HasSubstr("stride is -1"));
  EXPECT_THAT(error_of([] { TokenShards({"a"}, TokenShardOptions().token_bytes(3)); }),
              HasSubstr("token_bytes is 3, expected 2 or 4"));
  EXPECT_THAT(error_of([] { TokenShards({"a"}, TokenShardOptions().vocabulary(-1)); }),
              HasSubstr("vocabulary is -1"));
}

TEST(TokenShards, AreWrittenFromTextLineByLine) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("1.txt")) << "ab\n\nc";
  std::ofstream(folder.file("2.txt")) << "de\n";
  std::vector<std::string> lines;
  const auto paths = write_token_shards(
      {folder.file("1.txt"), folder.file("2.txt")}, folder.file("shard"),
      [&](const std::string& line) {
        lines.push_back(line);
        return bytes_of(line);
      },
      /*token_bytes=*/2, /*tokens_per_shard=*/5);
  EXPECT_THAT(lines, ElementsAre("ab\n", "\n", "c", "de\n"));
  EXPECT_THAT(paths, ElementsAre(folder.file("shard-00000.bin"), folder.file("shard-00001.bin")));
  EXPECT_EQ(std::filesystem::file_size(paths[0]), 10U);
  EXPECT_EQ(std::filesystem::file_size(paths[1]), 6U);
  const TokenShards text(paths, TokenShardOptions().window(2));
  ASSERT_EQ(text.size(), 3U);
  EXPECT_TRUE(at::equal(text.get(0).first, at::tensor({97, 98}, at::kLong)));
  EXPECT_TRUE(at::equal(text.get(2).second, at::tensor({101, 10}, at::kLong)));
}

TEST(TokenShards, RefuseToBeWrittenWhereATokenDoesNotFit) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("1.txt")) << "a\nb\n";
  const auto write = [&](int64_t token, int token_bytes) {
    write_token_shards(
        {folder.file("1.txt")}, folder.file("s"),
        [&](const std::string& line) { return std::vector<int64_t>{line[0] == 'b' ? token : 0}; },
        token_bytes);
  };
  EXPECT_THAT(data_error([&] { write(65536, 2); }),
              HasSubstr("1.txt, line 2: token 65536 does not fit in 2 bytes"));
  EXPECT_THAT(data_error([&] { write(-1, 4); }), HasSubstr("token -1 does not fit"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("s-00000.bin")));
  write(65536, 4);
  EXPECT_TRUE(std::filesystem::exists(folder.file("s-00000.bin")));
  const auto none = [](const std::string&) { return std::vector<int64_t>(); };
  EXPECT_THAT(data_error([&] { write_token_shards({folder.file("1.txt")}, "/tmp/s", none); }),
              HasSubstr("the text files have no token"));
  EXPECT_THAT(data_error([&] { write_token_shards({folder.file("no")}, "/tmp/s", none); }),
              HasSubstr("cannot be opened"));
  EXPECT_THAT(
      data_error([&] { write_token_shards({folder.file("1.txt")}, "/no/such/s", bytes_of); }),
      HasSubstr("/no/such/s-00000.bin: cannot be written"));
}

}  // namespace
}  // namespace lockstep
