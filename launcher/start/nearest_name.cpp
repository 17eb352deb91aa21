#include "start/nearest_name.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

namespace lockstep::launcher {
namespace {

constexpr size_t kNear = 2;

char lower(char letter) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
}

/// The number of letters to change, add or leave out (Levenshtein), whatever their case.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (lower(a[i]) == lower(b[j]) ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({changed, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

}  // namespace

std::string did_you_mean(const std::string& word, const std::vector<std::string>& names) {
  size_t nearest = kNear + 1;
  std::string found;
  for (const std::string& name : names) {
    // A name of which all is wrong is not meant.
    const size_t away = distance(word, name);
    if (away < nearest && away < name.size() / 2 + 1) {
      nearest = away;
      found = name;
    }
  }
  return found.empty() ? "" : "; did you mean " + found + "?";
}

}  // namespace lockstep::launcher
