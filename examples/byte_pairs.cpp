#include "byte_pairs.h"

#include <lockstep/collectives/check.h>
#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

namespace {

enum class Kind { letter, digit, space, sign };

/// The character at text[i] and its length in bytes. A byte that is no UTF-8 is a character.
std::pair<uint32_t, size_t> character_at(const std::string& text, size_t i) {
  const auto byte = [&](size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
  };
  const uint32_t first = byte(i);
  const size_t length = first >= 0xF0U ? 4 : first >= 0xE0U ? 3 : first >= 0xC0U ? 2 : 1;
  uint32_t code = length == 1 ? first : first & (0xFFU >> (length + 1));
  for (size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xC0U) != 0x80U) {
      return {first, 1};
    }
    code = code << 6U | (byte(i + k) & 0x3FU);
  }
  return {code, length};
}

Kind kind_of(uint32_t code) {
  const auto is_in = [&](uint32_t first, uint32_t last) { return code >= first && code <= last; };
  if (is_in('a', 'z') || is_in('A', 'Z')) {
    return Kind::letter;
  }
  if (is_in('0', '9') || code == 0xB2 || code == 0xB3 || code == 0xB9 || is_in(0xBC, 0xBE)) {
    return Kind::digit;
  }
  if (code == ' ' || is_in('\t', '\r') || is_in(0x1C, 0x1F) || code == 0x85 || code == 0xA0 ||
      is_in(0x2000, 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
      code == 0x205F || code == 0x3000) {
    return Kind::space;
  }
  if (code < 0x80 || (code < 0xC0 && code != 0xAA && code != 0xB5 && code != 0xBA) ||
      code == 0xD7 || code == 0xF7 || is_in(0x2010, 0x2BFF) || is_in(0x3001, 0x3020) ||
      is_in(0xFE00, 0xFE0F) || is_in(0xFF01, 0xFF0F) || code >= 0x1F000) {
    return Kind::sign;
  }
  return Kind::letter;
}

/// The end of the word that begins at text[begin], as in GPT-2's pattern
/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t end_of_word(const std::string& text, size_t begin) {
  for (const char* short_form : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    const std::string form = short_form;
    if (text.compare(begin, form.size(), form) == 0) {
      return begin + form.size();
    }
  }
  const auto kind_at = [&](size_t i) { return kind_of(character_at(text, i).first); };
  const auto end_of = [&](Kind kind, size_t i) {
    while (i < text.size() && kind_at(i) == kind) {
      i += character_at(text, i).second;
    }
    return i;
  };
  const size_t first = begin + (text[begin] == ' ' && begin + 1 < text.size() ? 1 : 0);
  if (kind_at(first) != Kind::space) {
    return end_of(kind_at(first), first);
  }
  const size_t end = end_of(Kind::space, begin);
  if (end == text.size()) {
    return end;
  }
  size_t last = begin;  // the last space, which belongs to the next word
  for (size_t i = begin; i < end; i += character_at(text, i).second) {
    last = i;
  }
  return last > begin ? last : end;
}

std::string utf8(uint32_t code) {  // below 0x800
  return code < 0x80 ? std::string(1, static_cast<char>(code))
                     : std::string{static_cast<char>(0xC0U | code >> 6U),
                                   static_cast<char>(0x80U | (code & 0x3FU))};
}

std::ifstream opened(const std::string& path) {
  std::ifstream file(path);
  LOCKSTEP_CHECK_CODE(
      file.good(), lockstep::ExitCode::data, path,
      ": cannot be opened. Get encoder.json and vocab.bpe of GPT-2 from "
      "https://openaipublic.blob.core.windows.net/gpt-2/models/124M/ and name their folder");
  return file;
}

}  // namespace

BytePairs::BytePairs(const std::string& encoder, const std::string& merges) {
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool prints = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    letters_.push_back(utf8(prints ? byte : next++));
    bytes_[letters_.back()] = static_cast<unsigned char>(byte);
  }
  std::ifstream vocabulary = opened(encoder);
  const auto json = nlohmann::json::parse(vocabulary, nullptr, /*allow_exceptions=*/false);
  LOCKSTEP_CHECK_CODE(json.is_object() && json.contains("<|endoftext|>"), lockstep::ExitCode::data,
                      encoder, ": expected a JSON object of tokens with <|endoftext|>");
  for (const auto& [token, number] : json.items()) {
    LOCKSTEP_CHECK_CODE(number.is_number_integer(), lockstep::ExitCode::data, encoder,
                        ": the token ", token, " has no number");
    numbers_[token] = number.get<int64_t>();
    tokens_[number.get<int64_t>()] = token;
  }
  for (const std::string& letter : letters_) {
    LOCKSTEP_CHECK_CODE(numbers_.count(letter) == 1, lockstep::ExitCode::data, encoder,
                        ": expected a token for each byte, and ", letter, " is missing");
  }
  std::ifstream pairs = opened(merges);
  for (std::string line; std::getline(pairs, line);) {
    const size_t space = line.find(' ');
    if (line.rfind("#version", 0) == 0 || space == std::string::npos) {
      continue;
    }
    LOCKSTEP_CHECK_CODE(numbers_.count(line.substr(0, space) + line.substr(space + 1)) == 1,
                        lockstep::ExitCode::data, merges, ": the pair ", line, " is no token of ",
                        encoder);
    ranks_.emplace(line, static_cast<int64_t>(ranks_.size()));
  }
}

const std::vector<int64_t>& BytePairs::numbers_of_word(const std::string& word) const {
  const auto [found, is_new] = words_.try_emplace(word);
  if (!is_new) {
    return found->second;
  }
  std::vector<std::string> parts;
  for (const char byte : word) {
    parts.push_back(letters_[static_cast<unsigned char>(byte)]);
  }
  while (parts.size() > 1) {
    int64_t lowest = -1;
    std::pair<std::string, std::string> pair;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto rank = ranks_.find(parts[i] + " " + parts[i + 1]);
      if (rank != ranks_.end() && (lowest < 0 || rank->second < lowest)) {
        lowest = rank->second;
        pair = {parts[i], parts[i + 1]};
      }
    }
    if (lowest < 0) {
      break;
    }
    std::vector<std::string> merged;
    for (size_t i = 0; i < parts.size(); ++i) {
      const bool here =
          i + 1 < parts.size() && parts[i] == pair.first && parts[i + 1] == pair.second;
      merged.push_back(here ? parts[i] + parts[i + 1] : parts[i]);
      i += here ? 1 : 0;
    }
    parts = std::move(merged);
  }
  for (const std::string& part : parts) {
    found->second.push_back(numbers_.at(part));
  }
  return found->second;
}

std::vector<int64_t> BytePairs::encode(const std::string& text) const {
  std::vector<int64_t> numbers;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = end_of_word(text, begin);
    const auto& word = numbers_of_word(text.substr(begin, end - begin));
    numbers.insert(numbers.end(), word.begin(), word.end());
    begin = end;
  }
  return numbers;
}

std::string BytePairs::decode(const std::vector<int64_t>& numbers) const {
  std::string text;
  for (const int64_t number : numbers) {
    const auto token = tokens_.find(number);
    LOCKSTEP_CHECK(token != tokens_.end(), "BytePairs: ", number, " is no token");
    if (number == end_of_text()) {
      text += token->second;
      continue;
    }
    const std::string& letters = token->second;
    for (size_t i = 0; i < letters.size();) {
      const size_t length = character_at(letters, i).second;
      text += static_cast<char>(bytes_.at(letters.substr(i, length)));
      i += length;
    }
  }
  return text;
}
