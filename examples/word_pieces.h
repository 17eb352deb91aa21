#pragma once

#include <lockstep/collectives/check.h>
#include <cctype>
#include <fstream>
#include <string>
#include <unordered_map>
#include <vector>

/// A text, or two, as numbers of pieces.
struct Encoded {
  std::vector<int64_t> pieces;
  std::vector<int64_t> types;  // 0 in the first text, 1 in the second
};

/// Cuts text into the pieces of a WordPiece vocabulary, as BERT (uncased) does it: lower case,
/// punctuation apart, of each word the longest piece first; "##" marks pieces inside a word.
/// Accents and capitals beyond ASCII stay.
class WordPieces {
 public:
  /// A file with one piece a line.
  explicit WordPieces(const std::string& path) {
    std::ifstream file(path);
    for (std::string piece; std::getline(file, piece);) {
      numbers_.emplace(piece, static_cast<int64_t>(numbers_.size()));
    }
    for (const char* piece : {"[CLS]", "[SEP]", "[UNK]"}) {
      LOCKSTEP_CHECK_CODE(numbers_.count(piece) == 1, lockstep::ExitCode::data, path,
                          ": expected a vocabulary with the piece ", piece,
                          ". Get vocab.txt of bert-base-uncased from "
                          "https://huggingface.co/google-bert/bert-base-uncased");
    }
  }

  int64_t size() const { return static_cast<int64_t>(numbers_.size()); }

  /// [CLS] first [SEP] or, if there is a second text, [CLS] first [SEP] second [SEP]. If these are
  /// more than `length` pieces, the longer text loses its last ones.
  Encoded encode(const std::string& first, const std::string& second, size_t length) const {
    std::vector<int64_t> one = pieces_of(first), two = pieces_of(second);
    const size_t marks = two.empty() ? 2 : 3;
    while (one.size() + two.size() + marks > length && !(one.empty() && two.empty())) {
      (one.size() >= two.size() ? one : two).pop_back();
    }
    Encoded result;
    const auto add = [&](const std::vector<int64_t>& pieces, int64_t type) {
      result.pieces.insert(result.pieces.end(), pieces.begin(), pieces.end());
      result.types.resize(result.pieces.size(), type);
    };
    add({numbers_.at("[CLS]")}, 0);
    add(one, 0);
    add({numbers_.at("[SEP]")}, 0);
    if (marks == 3) {
      add(two, 1);
      add({numbers_.at("[SEP]")}, 1);
    }
    return result;
  }
  Encoded encode(const std::string& text, size_t length) const { return encode(text, "", length); }

 private:
  std::vector<int64_t> pieces_of(const std::string& text) const {
    std::vector<int64_t> numbers;
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
    return numbers;
  }

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
