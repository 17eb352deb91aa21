#pragma once

#include <lockstep/collectives/error.h>
#include <torch/types.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

/// A text as numbers of words, one after the other: int64, [count].
struct WordCorpus {
  torch::Tensor train, valid, test;
  int64_t words = 0;  // of the vocabulary
};

/// Reads train.txt, valid.txt and test.txt. A line ends with the word <eos>. Words are numbered in
/// the order in which they first occur, as in pytorch/examples/word_language_model.
inline WordCorpus read_corpus(const std::string& folder) {
  std::unordered_map<std::string, int64_t> numbers;
  const auto read = [&](const std::string& name) {
    std::ifstream file(folder + "/" + name);
    LOCKSTEP_CHECK_CODE(
        file.good(), lockstep::ExitCode::data, folder, "/", name,
        ": cannot be opened. Get WikiText-2 (train.txt, valid.txt, test.txt) from "
        "https://github.com/pytorch/examples/tree/main/word_language_model/data/wikitext-2 and "
        "name its folder with --data, or use --synthetic");
    std::vector<int64_t> text;
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line + " <eos>");
      for (std::string word; words >> word;) {
        text.push_back(numbers.try_emplace(word, numbers.size()).first->second);
      }
    }
    LOCKSTEP_CHECK_CODE(!text.empty(), lockstep::ExitCode::data, folder, "/", name, ": is empty");
    return torch::tensor(text, torch::kLong);
  };
  WordCorpus corpus{read("train.txt"), read("valid.txt"), read("test.txt")};
  corpus.words = static_cast<int64_t>(numbers.size());
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

/// A text in columns of equal length, the rest left out: int64, [length, count].
inline torch::Tensor in_columns(const torch::Tensor& text, int64_t count) {
  LOCKSTEP_CHECK_CODE(text.numel() >= 2 * count, lockstep::ExitCode::data, "the text has ",
                      text.numel(), " words, too few for ", count, " columns of two words");
  const int64_t length = text.numel() / count;
  return text.narrow(0, 0, length * count).view({count, length}).t().contiguous();
}

/// Stretches of some columns, one after the other, and the word that follows each word. A batch is
/// one stretch: two int64 tensors, [length, columns].
struct Stretches {
  torch::Tensor columns;
  int64_t length;

  size_t size() const { return static_cast<size_t>((columns.size(0) - 2) / length + 1); }
  std::pair<torch::Tensor, torch::Tensor> get_batch(const std::vector<size_t>& indices) const {
    const int64_t begin = static_cast<int64_t>(indices.at(0)) * length;
    const int64_t words = std::min(length, columns.size(0) - 1 - begin);
    return {columns.narrow(0, begin, words), columns.narrow(0, begin + 1, words)};
  }
};

/// The columns of a rank: all ranks together have all.
inline torch::Tensor columns_of_rank(const torch::Tensor& columns, int rank, int ranks) {
  LOCKSTEP_CHECK(columns.size(1) % ranks == 0, columns.size(1), " columns cannot be divided among ",
                 ranks, " ranks; choose a --batch-size that is a multiple");
  const int64_t each = columns.size(1) / ranks;
  return columns.narrow(1, rank * each, each).contiguous();
}

/// Whole columns as samples, for evaluation.
struct WholeColumns {
  torch::Tensor columns;

  size_t size() const { return static_cast<size_t>(columns.size(1)); }
  torch::Tensor get(size_t index) const { return columns.select(1, static_cast<int64_t>(index)); }
};
