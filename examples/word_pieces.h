#pragma once

#include <lockstep/collectives/error.h>

#include <cctype>
#include <fstream>
#include <string>
#include <unordered_map>
#include <vector>

/// Cuts text into the pieces of a WordPiece vocabulary, as BERT (uncased) does it: lower case,
/// punctuation apart, of each word the longest piece first; "##" marks pieces inside a word.
/// Accents stay.
class WordPieces {
 public:
  /// A file with one piece a line.
  explicit WordPieces(const std::string& path) {
    std::ifstream file(path);
    for (std::string piece; std::getline(file, piece);) {
      numbers_.emplace(piece, static_cast<int64_t>(numbers_.size()));
    }
    LOCKSTEP_CHECK_CODE(numbers_.count("[CLS]") == 1 && numbers_.count("[UNK]") == 1,
                        lockstep::ExitCode::data, path,
                        ": expected a vocabulary with the pieces [CLS] and [UNK]");
  }

  int64_t size() const { return static_cast<int64_t>(numbers_.size()); }

  /// [CLS] and the text's pieces, at most `length` numbers.
  std::vector<int64_t> numbers_of(const std::string& text, int64_t length) const {
    std::vector<int64_t> numbers = {numbers_.at("[CLS]")};
    std::string word;
    const auto end_word = [&] {
      add_word(word, numbers);
      word.clear();
    };
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (std::isspace(byte) != 0) {
        end_word();
      } else if (std::ispunct(byte) != 0) {
        end_word();
        add_word(std::string(1, c), numbers);
      } else {
        word += static_cast<char>(std::tolower(byte));
      }
    }
    end_word();
    numbers.resize(std::min(numbers.size(), static_cast<size_t>(length)));
    return numbers;
  }

 private:
  void add_word(const std::string& word, std::vector<int64_t>& numbers) const {
    const size_t before = numbers.size();
    for (size_t begin = 0; begin < word.size();) {
      size_t end = word.size();
      auto found = numbers_.end();
      for (; end > begin && found == numbers_.end(); --end) {
        found = numbers_.find((begin > 0 ? "##" : "") + word.substr(begin, end - begin));
      }
      if (found == numbers_.end()) {
        numbers.resize(before);
        numbers.push_back(numbers_.at("[UNK]"));
        return;
      }
      numbers.push_back(found->second);
      begin = end + 1;
    }
  }

  std::unordered_map<std::string, int64_t> numbers_;
};
