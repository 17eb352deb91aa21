// How the examples cut text into pieces of words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "byte_pairs.h"
#include "runtime/temporary_folder.h"
#include "word_pieces.h"

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The files of a vocabulary of all bytes, which are the tokens 0 to 255, and some pairs.
BytePairs byte_pairs(const lockstep::testing::TemporaryFolder& folder) {
  nlohmann::json encoder;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool prints = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    const int code = prints ? byte : next++;
    const std::string letter = code < 0x80 ? std::string(1, static_cast<char>(code))
                                           : std::string{static_cast<char>(0xC0 | code >> 6),
                                                         static_cast<char>(0x80 | (code & 0x3F))};
    encoder[letter] = byte;
  }
  std::string merges = "#version: 0.2\n";
  for (const std::string pair : {"l l", "h e", "he ll", "hell o", "Ġ w", "o r", "' s"}) {
    merges += pair + "\n";
    std::string token = pair;
    encoder[token.erase(token.find(' '), 1)] = encoder.size();
  }
  encoder["<|endoftext|>"] = encoder.size();
  std::ofstream(folder.file("encoder.json")) << encoder;
  std::ofstream(folder.file("vocab.bpe")) << merges;
  return BytePairs(folder.file("encoder.json"), folder.file("vocab.bpe"));
}

std::vector<std::string> tokens_of(const BytePairs& pairs, const std::string& text) {
  std::vector<std::string> tokens;
  for (const int64_t number : pairs.encode(text)) {
    tokens.push_back(pairs.decode({number}));
  }
  return tokens;
}

TEST(BytePairs, MergesThePairsOfLowestRankFirst) {
  const lockstep::testing::TemporaryFolder folder;
  const BytePairs pairs = byte_pairs(folder);
  EXPECT_EQ(pairs.size(), 264);
  EXPECT_EQ(pairs.end_of_text(), 263);
  EXPECT_THAT(tokens_of(pairs, "hello world"), ElementsAre("hello", " w", "or", "l", "d"));
  EXPECT_THAT(tokens_of(pairs, "shell"), ElementsAre("s", "hell"));
}

TEST(BytePairs, CutsWordsAsGpt2sPatternDoes) {
  const lockstep::testing::TemporaryFolder folder;
  const BytePairs pairs = byte_pairs(folder);
  // Pairs are not merged over the border of a word: " w" is one token only where a word begins.
  // After a blank the pattern takes the apostrophe with the blank: " '" and "s".
  EXPECT_THAT(tokens_of(pairs, "a's 's"), ElementsAre("a", "'s", " ", "'", "s"));
  EXPECT_THAT(tokens_of(pairs, "h\n w"), ElementsAre("h", "\n", " w"));
  EXPECT_THAT(tokens_of(pairs, "  w"), ElementsAre(" ", " w"));
  EXPECT_THAT(tokens_of(pairs, "h1e"), ElementsAre("h", "1", "e"));
  EXPECT_THAT(tokens_of(pairs, "h-e"), ElementsAre("h", "-", "e"));
  EXPECT_THAT(tokens_of(pairs, "or or "), ElementsAre("or", " ", "or", " "));
}

TEST(BytePairs, GivesBackAnyBytes) {
  const lockstep::testing::TemporaryFolder folder;
  const BytePairs pairs = byte_pairs(folder);
  std::string text = "Grüße,\u2003“hello” \U0001F600 5½\t\r\n";
  for (int byte = 0; byte < 256; ++byte) {
    text += static_cast<char>(byte);
  }
  EXPECT_EQ(pairs.decode(pairs.encode(text)), text);
  EXPECT_TRUE(pairs.encode("").empty());
  EXPECT_THROW(pairs.decode({264}), lockstep::Error);
}

TEST(BytePairs, RefusesOtherFilesByName) {
  const lockstep::testing::TemporaryFolder folder;
  byte_pairs(folder);
  const std::string encoder = folder.file("encoder.json"), merges = folder.file("vocab.bpe");
  const auto message = [](const std::string& first, const std::string& second) -> std::string {
    try {
      const BytePairs pairs(first, second);
    } catch (const lockstep::Error& error) {
      EXPECT_EQ(error.code(), lockstep::ExitCode::data);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message(folder.file("none"), merges), HasSubstr("https://openaipublic"));
  EXPECT_THAT(message(encoder, folder.file("none")), HasSubstr("none: cannot be opened"));
  EXPECT_THAT(message(merges, merges), HasSubstr("expected a JSON object of tokens"));
  std::ofstream(merges) << "q z\n";
  EXPECT_THAT(message(encoder, merges), HasSubstr("the pair q z is no token"));
  std::ofstream(encoder) << R"({"<|endoftext|>": 0})";
  EXPECT_THAT(message(encoder, merges), HasSubstr("expected a token for each byte"));
}

/// [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, then words.
WordPieces word_pieces(const lockstep::testing::TemporaryFolder& folder) {
  std::ofstream(folder.file("vocab.txt"))
      << "[PAD]\n[UNK]\n[CLS]\n[SEP]\nplay\n##ing\n##s\nno\n!\n";
  return WordPieces(folder.file("vocab.txt"));
}

TEST(WordPieces, AddsTheSeparatorAndCutsTheLongestPieceFirst) {
  const lockstep::testing::TemporaryFolder folder;
  const WordPieces words = word_pieces(folder);
  const Encoded one = words.encode("Playing plays!  xyz", 16);
  EXPECT_THAT(one.pieces, ElementsAre(2, 4, 5, 4, 6, 8, 1, 3));
  EXPECT_THAT(one.types, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(words.encode("Playing plays!", 4).pieces, ElementsAre(2, 4, 5, 3));
  EXPECT_THAT(words.encode("", 4).pieces, ElementsAre(2, 3));
}

TEST(WordPieces, TellsTwoTextsApartByTypesAndShortensTheLonger) {
  const lockstep::testing::TemporaryFolder folder;
  const WordPieces words = word_pieces(folder);
  const Encoded two = words.encode("play", "no!", 16);
  EXPECT_THAT(two.pieces, ElementsAre(2, 4, 3, 7, 8, 3));
  EXPECT_THAT(two.types, ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(words.encode("play", "no!", 5).pieces, ElementsAre(2, 4, 3, 7, 3));
  EXPECT_THAT(words.encode("play plays", "no!", 7).pieces, ElementsAre(2, 4, 4, 3, 7, 8, 3));
}

TEST(WordPieces, RefusesAVocabularyWithoutTheSpecialPieces) {
  const lockstep::testing::TemporaryFolder folder;
  std::ofstream(folder.file("vocab.txt")) << "[CLS]\n[UNK]\n";
  try {
    const WordPieces words(folder.file("vocab.txt"));
    FAIL();
  } catch (const lockstep::Error& error) {
    EXPECT_EQ(error.code(), lockstep::ExitCode::data);
    EXPECT_THAT(error.what(), HasSubstr("expected a vocabulary with the piece [SEP]"));
  }
}

}  // namespace
