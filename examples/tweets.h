#pragma once

#include <lockstep/collectives/check.h>
#include <torch/types.h>

#include <fstream>
#include <string>
#include <utility>

#include "csv_table.h"
#include "word_pieces.h"

/// Texts as numbers of pieces, with a class each: 0 negative, 1 neutral, 2 positive.
struct Tweets {
  torch::Tensor pieces;  // int64, [count, length], 0 behind the end
  torch::Tensor labels;  // int64, [count]
  int64_t vocabulary;

  size_t size() const { return static_cast<size_t>(labels.size(0)); }
  std::pair<torch::Tensor, torch::Tensor> get(size_t index) const {
    const auto i = static_cast<int64_t>(index);
    return {pieces[i], labels[i]};
  }

  /// Every tenth tweet, or all others.
  Tweets part(bool tenth) const {
    const torch::Tensor chosen = torch::arange(labels.size(0)).remainder(10).eq(0).eq(tenth);
    return {pieces.index({chosen}), labels.index({chosen}), vocabulary};
  }
};

/// Sentences of 40 words, in which one of three others gives the class away.
inline Tweets made_up_tweets(int64_t count, int64_t length) {
  const torch::Tensor labels = torch::arange(count) % 3;
  torch::Tensor pieces = torch::randint(4, 44, {count, length}, torch::kLong);
  for (int64_t i = 0; i < count; ++i) {
    pieces[i][1 + i % (length / 2)] = 50 + labels[i];
    pieces[i]
        .narrow(0, length / 2 + i % (length / 2), length - length / 2 - i % (length / 2))
        .zero_();
  }
  pieces.select(1, 0).fill_(1);
  return {pieces, labels, 64};
}

/// The columns text and sentiment of a CSV file, cut into WordPieces.
inline Tweets read_tweets(const std::string& csv, const std::string& vocabulary, int64_t length) {
  LOCKSTEP_CHECK_CODE(std::ifstream(csv).good(), lockstep::ExitCode::data, csv,
                      ": cannot be opened. Get train.csv from "
                      "https://www.kaggle.com/c/tweet-sentiment-extraction");
  const auto rows = read_csv(csv);
  const WordPieces words(vocabulary);
  Tweets tweets{torch::zeros({static_cast<int64_t>(rows.size()), length}, torch::kLong),
                torch::zeros({static_cast<int64_t>(rows.size())}, torch::kLong), words.size()};
  for (size_t row = 0; row < rows.size(); ++row) {
    LOCKSTEP_CHECK_CODE(rows[row].size() == 4, lockstep::ExitCode::data, csv, ": row ", row,
                        " has ", rows[row].size(), " fields, expected 4");
    const auto ids = words.encode(rows[row][1], static_cast<size_t>(length)).pieces;
    const auto i = static_cast<int64_t>(row);
    tweets.pieces[i].narrow(0, 0, static_cast<int64_t>(ids.size())).copy_(torch::tensor(ids));
    tweets.labels[i] = rows[row][3] == "negative" ? 0 : rows[row][3] == "neutral" ? 1 : 2;
  }
  return tweets;
}
