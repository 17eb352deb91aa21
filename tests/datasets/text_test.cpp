// Texts of whole words, and their columns for models that carry a hidden state.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/inputs/text_columns.h>
#include <lockstep/inputs/word_vocabulary.h>
#include <lockstep/runtime/loader.h>
#include <zlib.h>

#include <fstream>

#include "error_of.h"
#include "runtime/data_error.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"

namespace lockstep {
namespace {

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

at::Tensor numbers(std::vector<int64_t> values) {
  return at::tensor(values, at::kLong);
}

TEST(WordVocabulary, NumbersWordsInTheOrderInWhichTheyFirstOccur) {
  const TemporaryFolder folder;
  write(folder.file("train.txt"), " the cat\n\nthe\tdog \r\nend");
  write(folder.file("valid.txt"), "a dog\n");
  WordVocabulary words;
  EXPECT_TRUE(at::equal(words.read(folder.file("train.txt")),
                        numbers({0, 1, 2, 2, 0, 3, 2, 4, 2})));  // 2 is <eos>
  EXPECT_TRUE(at::equal(words.read(folder.file("valid.txt")), numbers({5, 3, 2})));
  EXPECT_EQ(words.size(), 6);
  EXPECT_EQ(words.word(2), "<eos>");
  EXPECT_EQ(words.number("dog"), 3);
}

TEST(WordVocabulary, EndsOfLinesNeedNoWord) {
  const TemporaryFolder folder;
  write(folder.file("text"), "b a\nb\n");
  WordVocabulary words;
  EXPECT_TRUE(at::equal(words.read(folder.file("text"), ""), numbers({0, 1, 0})));
  EXPECT_EQ(words.size(), 2);
}

TEST(WordVocabulary, ReadsGzip) {
  const TemporaryFolder folder;
  gzFile file = gzopen(folder.file("text.gz").c_str(), "wb");
  gzputs(file, "one two\n");
  gzclose(file);
  WordVocabulary words;
  EXPECT_TRUE(at::equal(words.read(folder.file("text.gz")), numbers({0, 1, 2})));
}

TEST(WordVocabulary, NamesWhatIsWrong) {
  const TemporaryFolder folder;
  write(folder.file("blank"), " \n \n");
  WordVocabulary words;
  EXPECT_THAT(data_error([&] { words.read(folder.file("missing")); }), HasSubstr("missing"));
  EXPECT_THAT(data_error([&] { words.read(folder.file("blank"), ""); }), HasSubstr("has no word"));
  EXPECT_THAT(data_error([&] { words.number("word"); }),
              HasSubstr("\"word\" is not in the vocabulary of 0 words"));
  EXPECT_THAT(error_of([&] { words.word(0); }), HasSubstr("no word has the number 0"));
}

TEST(TextColumns, ASampleIsAStretchOfAColumnWithTheTokensThatFollow) {
  const TextColumns columns(at::arange(17), /*columns=*/2, /*length=*/3);  // 0 to 7, 8 to 15
  ASSERT_EQ(columns.size(), 6U);
  for (const size_t column : {0, 1}) {
    const int64_t first = 8 * static_cast<int64_t>(column);
    const auto [tokens, targets] = columns.get(2 + column);
    EXPECT_TRUE(at::equal(tokens, at::arange(first + 3, first + 6)));
    EXPECT_TRUE(at::equal(targets, at::arange(first + 4, first + 7)));
    const auto [last, last_target] = columns.get(4 + column);
    EXPECT_TRUE(at::equal(last, at::arange(first + 6, first + 7)));
    EXPECT_TRUE(at::equal(last_target, at::arange(first + 7, first + 8)));
  }
}

TEST(TextColumns, WithoutALengthASampleIsAWholeColumn) {
  const TextColumns columns(at::arange(17), 2);
  ASSERT_EQ(columns.size(), 2U);
  EXPECT_TRUE(at::equal(columns.get(1).first, at::arange(8, 15)));
  EXPECT_TRUE(at::equal(columns.get(1).second, at::arange(9, 16)));
}

TEST(TextColumns, EachBatchOfARankGoesOnWithTheColumnsOfTheBatchBefore) {
  const TextColumns columns(at::arange(60 * 10), /*columns=*/6, /*length=*/7);
  for (const int ranks : {1, 2, 3, 6}) {
    at::Tensor seen;
    for (int rank = 0; rank < ranks; ++rank) {
      Loader<TextColumns> loader(columns, rank, ranks, /*seed=*/1,
                                 LoaderOptions().batch_size(columns.batch_size(ranks)));
      at::Tensor next;  // that must follow
      for (auto& [tokens, targets] : loader) {
        ASSERT_EQ(tokens.size(0), 6 / ranks);
        EXPECT_TRUE(loader.begins_epoch() || at::equal(tokens.select(1, 0), next));
        EXPECT_TRUE(at::equal(tokens + 1, targets));
        next = targets.select(1, -1);
      }
      seen = seen.defined() ? at::cat({seen, next}) : next;
    }
    EXPECT_TRUE(at::equal(std::get<0>(seen.sort()), at::arange(99, 600, 100))) << ranks;
  }
}

TEST(TextColumns, NamesWhatIsWrong) {
  EXPECT_THAT(error_of([] { TextColumns(at::arange(9), 0); }), HasSubstr("columns is 0"));
  EXPECT_THAT(error_of([] { TextColumns(at::arange(9), 1, -1); }), HasSubstr("length is -1"));
  EXPECT_THAT(error_of([] { TextColumns(at::zeros({9}), 1); }), HasSubstr("Float [9]"));
  EXPECT_THAT(data_error([] { TextColumns(at::arange(9), 5); }),
              HasSubstr("9 tokens, too few for 5 columns"));
  const TextColumns columns(at::arange(9), 4);
  EXPECT_THAT(error_of([&] { columns.batch_size(3); }),
              HasSubstr("4 columns cannot be divided among 3 ranks"));
  EXPECT_THAT(error_of([&] { columns.get(4); }), HasSubstr("there is no sample 4, there are 4"));
}

}  // namespace
}  // namespace lockstep
