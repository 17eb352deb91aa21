#pragma once

#include <lockstep/collectives/check.h>
#include <lockstep/inputs/word_vocabulary.h>
#include <torch/types.h>

#include <filesystem>
#include <string>
#include <vector>

/// A text as numbers of words, one after the other: int64, [count].
struct WordCorpus {
  torch::Tensor train, valid, test;
  int64_t words = 0;  // of the vocabulary
};

/// Reads train.txt, valid.txt and test.txt. A line ends with the word <eos>. Words are numbered in
/// the order in which they first occur, as in pytorch/examples/word_language_model.
inline WordCorpus read_corpus(const std::string& folder) {
  LOCKSTEP_CHECK_CODE(
      std::filesystem::exists(folder + "/train.txt"), lockstep::ExitCode::data, folder,
      "/train.txt: is missing. Get WikiText-2 (train.txt, valid.txt, test.txt) from "
      "https://github.com/pytorch/examples/tree/main/word_language_model/data/wikitext-2 and "
      "name its folder with --data, or use --synthetic");
  lockstep::WordVocabulary words;
  WordCorpus corpus{words.read(folder + "/train.txt"), words.read(folder + "/valid.txt"),
                    words.read(folder + "/test.txt")};
  corpus.words = words.size();
  return corpus;
}

/// A made-up language of 30 words: two words decide the next one, but for one time in ten.
inline WordCorpus made_up_corpus() {
  constexpr int64_t kWords = 30;
  const auto write = [&](int64_t count, int64_t seed) {
    std::vector<int64_t> text = {seed % kWords, 1};
    uint64_t random = static_cast<uint64_t>(seed);
    while (static_cast<int64_t>(text.size()) < count) {
      random = random * 6364136223846793005U + 1442695040888963407U;
      const auto chance = static_cast<int64_t>(random >> 33U);
      const int64_t last = text.back();
      text.push_back(chance % 10 == 0 ? chance / 10 % kWords
                                      : (3 * last + text[text.size() - 2] + 1) % kWords);
    }
    return torch::tensor(text, torch::kLong);
  };
  return {write(12000, 1), write(1000, 2), write(1000, 3), kWords};
}
