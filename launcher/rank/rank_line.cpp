#include "rank/rank_line.h"

#include <cstdlib>

namespace lockstep::launcher {
namespace {
constexpr char marker = '\x1e';
}

std::string encode(const RankLine& line) {
  return marker + std::to_string(line.rank) + (line.is_error ? "!" : "") +
         static_cast<char>(line.kind) + line.text + "\n";
}

std::optional<RankLine> decode(const std::string& text) {
  if (text.empty() || text[0] != marker) {
    return std::nullopt;
  }
  char* end = nullptr;
  RankLine line;
  line.rank = static_cast<int>(std::strtol(text.c_str() + 1, &end, 10));
  line.is_error = *end == '!';
  if (line.is_error) {
    ++end;
  }
  if (end == text.c_str() + 1 || *end == '\0') {
    return std::nullopt;
  }
  line.kind = static_cast<RankLine::Kind>(*end);
  line.text = text.substr(static_cast<size_t>(end + 1 - text.c_str()));
  return line;
}

}  // namespace lockstep::launcher
