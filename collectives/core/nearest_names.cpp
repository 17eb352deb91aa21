#include <lockstep/collectives/impl/nearest_names.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep::detail {

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

std::string nearest_names(const std::string& name, const std::vector<std::string>& known) {
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& other : known) {
    ranked.emplace_back(edit_distance(name, other), other);
  }
  std::sort(ranked.begin(), ranked.end());
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(ranked.size(), 3); ++i) {
    text += (i == 0 ? "\"" : ", \"") + ranked[i].second + "\"";
  }
  return text;
}

}  // namespace lockstep::detail
