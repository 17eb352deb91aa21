#include <ATen/ops/tensor.h>
#include <lockstep/collectives/check.h>
#include <lockstep/inputs/datasets/files/file_bytes.h>
#include <lockstep/inputs/word_vocabulary.h>

#include <algorithm>

namespace lockstep {
namespace {

/// As in the "C" locale, whatever the program's locale is.
bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

at::Tensor WordVocabulary::read(const std::string& path, std::string_view line_end) {
  const detail::FileBytes file(path);
  const auto* const end = reinterpret_cast<const char*>(file.data()) + file.size();
  std::vector<int64_t> text;
  for (const char* at = end - file.size(); at < end;) {
    const char* const line = std::find(at, end, '\n');
    while ((at = std::find_if_not(at, line, is_blank)) < line) {
      const char* const after = std::find_if(at, line, is_blank);
      text.push_back(add({at, static_cast<size_t>(after - at)}));
      at = after;
    }
    if (!line_end.empty()) {
      text.push_back(add(line_end));
    }
    at = line < end ? line + 1 : end;
  }
  LOCKSTEP_CHECK_CODE(!text.empty(), ExitCode::data, path, ": has no word");
  return at::tensor(text, at::kLong);
}

int64_t WordVocabulary::number(const std::string& word) const {
  const auto found = numbers_.find(word);
  LOCKSTEP_CHECK_CODE(found != numbers_.end(), ExitCode::data, "the word \"", word,
                      "\" is not in the vocabulary of ", size(), " words");
  return found->second;
}

const std::string& WordVocabulary::word(int64_t number) const {
  LOCKSTEP_CHECK(number >= 0 && number < size(), "no word has the number ", number,
                 "; the vocabulary has ", size(), " words");
  return words_[static_cast<size_t>(number)];
}

int64_t WordVocabulary::add(std::string_view word) {
  const auto [entry, is_new] = numbers_.try_emplace(std::string(word), size());
  if (is_new) {
    words_.push_back(entry->first);
  }
  return entry->second;
}

}  // namespace lockstep
