#include <ATen/ops/empty.h>
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

template <typename Action>
void for_each_word(std::string_view text, std::string_view line_end, const Action& action) {
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const char* const line = std::find(at, end, '\n');
    while ((at = std::find_if_not(at, line, is_blank)) < line) {
      const char* const after = std::find_if(at, line, is_blank);
      action({at, static_cast<size_t>(after - at)});
      at = after;
    }
    if (!line_end.empty()) {
      action(line_end);
    }
    at = line < end ? line + 1 : end;
  }
}

}  // namespace

at::Tensor WordVocabulary::read(const std::string& path, std::string_view line_end) {
  const detail::FileBytes file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  int64_t words = 0;
  for_each_word(text, line_end, [&](std::string_view) { ++words; });
  LOCKSTEP_CHECK_CODE(words > 0, ExitCode::data, path, ": has no word");
  at::Tensor numbers = at::empty({words}, at::kLong);
  auto* to = numbers.mutable_data_ptr<int64_t>();
  for_each_word(text, line_end, [&](std::string_view word) { *to++ = add(word); });
  return numbers;
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
