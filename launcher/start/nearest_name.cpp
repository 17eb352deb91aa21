#include "start/nearest_name.h"

#include <lockstep/collectives/impl/nearest_names.h>

#include <algorithm>
#include <cctype>

namespace lockstep::launcher {
namespace {

constexpr size_t kNear = 2;

std::string lower(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return word;
}

}  // namespace

std::string did_you_mean(const std::string& word, const std::vector<std::string>& names) {
  size_t nearest = kNear + 1;
  std::string found;
  for (const std::string& name : names) {
    // A name of which all is wrong is not meant.
    const size_t away = detail::edit_distance(lower(word), lower(name));
    if (away < nearest && away < name.size() / 2 + 1) {
      nearest = away;
      found = name;
    }
  }
  return found.empty() ? "" : "; did you mean " + found + "?";
}

}  // namespace lockstep::launcher
