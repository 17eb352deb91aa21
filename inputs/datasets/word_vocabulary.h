#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep {

/// Numbers of words, and texts as such numbers, for language models of whole words.
///
///   lockstep::WordVocabulary words;
///   const at::Tensor train = words.read("train.txt");
///   const at::Tensor valid = words.read("valid.txt");
///   Model model(words.size(), ...);
///
/// Words are numbered from 0 in the order in which they first occur, so programs that read the same
/// files in the same order have the same numbers.
/// Ranks: local; the ranks read the same files in the same order. Threads: one; const calls from
/// any number of threads.
class WordVocabulary {
 public:
  /// The words of a text file, which stand between blanks (isspace): int64 [words]. A new word gets
  /// the next number. `line_end` is the word that stands for the end of each line; if it is empty,
  /// line ends are blanks. The file may be gzip.
  /// Throws Error (exit code data) that names the file: missing, empty, packed in another way, or
  /// without a word.
  at::Tensor read(const std::string& path, std::string_view line_end = "<eos>");

  /// Number of different words.
  int64_t size() const { return static_cast<int64_t>(words_.size()); }
  /// The number of a word. Throws Error (exit code data) for one that was not read.
  int64_t number(const std::string& word) const;
  /// The word of a number. Throws Error for one that is not in [0, size()).
  const std::string& word(int64_t number) const;

 private:
  int64_t add(std::string_view word);

  std::unordered_map<std::string, int64_t> numbers_;
  std::vector<std::string> words_;
};

}  // namespace lockstep
