#include <lockstep/collectives/impl/odd_ranks.h>

#include <algorithm>
#include <map>

namespace lockstep::detail {

std::optional<OddRanks> odd_ranks(const std::vector<std::string>& values) {
  std::map<std::string, size_t> counts;
  for (const std::string& value : values) {
    ++counts[value];
  }
  if (counts.size() < 2) {
    return std::nullopt;
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  OddRanks odd;
  odd.has_majority = 2 * most->second > values.size();
  const std::string& right = odd.has_majority ? most->first : values.front();
  const auto first_where = [&](bool is_right) {
    const auto found = std::find_if(values.begin(), values.end(), [&](const std::string& value) {
      return (value == right) == is_right;
    });
    return static_cast<size_t>(found - values.begin());
  };
  odd.first = first_where(false);
  odd.reference = first_where(true);
  for (size_t rank = 0; rank < values.size(); ++rank) {
    if (!odd.has_majority || values[rank] != right) {
      odd.ranks.push_back(static_cast<int>(rank));
    }
  }
  return odd;
}

}  // namespace lockstep::detail
