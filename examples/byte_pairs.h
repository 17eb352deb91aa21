#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

/// Cuts text into the byte pairs of GPT-2 (Sennrich et al., 2016; Radford et al., 2019). Of
/// characters beyond ASCII only ranges are known (letters, spaces, other signs), not each class of
/// Unicode: a rare sign may be cut elsewhere than in Python. decode(encode(text)) is always `text`.
/// Threads: one.
class BytePairs {
 public:
  /// `encoder`: the file encoder.json or vocab.json; `merges`: vocab.bpe or merges.txt. Throws
  /// lockstep::Error (exit code data) if a file is missing or has other contents.
  BytePairs(const std::string& encoder, const std::string& merges);

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  /// The token <|endoftext|>, which stands between texts.
  int64_t end_of_text() const { return numbers_.at("<|endoftext|>"); }
  std::vector<int64_t> encode(const std::string& text) const;
  /// Throws lockstep::Error for a number that is no token.
  std::string decode(const std::vector<int64_t>& numbers) const;

 private:
  const std::vector<int64_t>& numbers_of_word(const std::string& word) const;

  std::unordered_map<std::string, int64_t> numbers_, ranks_;  // of tokens, of merged pairs
  std::unordered_map<int64_t, std::string> tokens_;
  std::vector<std::string> letters_;  // the character that stands for each byte
  std::unordered_map<std::string, unsigned char> bytes_;
  mutable std::unordered_map<std::string, std::vector<int64_t>> words_;  // cut before
};
