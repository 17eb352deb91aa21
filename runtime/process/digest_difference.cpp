#include <c10/util/StringUtil.h>
#include <lockstep/collectives/impl/rank_names.h>
#include <lockstep/runtime/process/impl/digest_difference.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

namespace lockstep::detail {
namespace {

uint64_t value_at(const std::string& bytes, size_t index) {
  uint64_t value = 0;
  if ((index + 1) * sizeof(value) <= bytes.size()) {
    std::memcpy(&value, bytes.data() + index * sizeof(value), sizeof(value));
  }
  return value;
}

/// A rank that holds what more than half of the ranks hold, if there is one.
std::optional<size_t> of_the_majority(const std::vector<std::string>& all) {
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (2 * std::count(all.begin(), all.end(), all[rank]) > static_cast<int64_t>(all.size())) {
      return rank;
    }
  }
  return std::nullopt;
}

std::string who_differs(const std::vector<std::string>& all) {
  const auto right = of_the_majority(all);
  if (!right.has_value()) {
    return all.size() == 2
               ? std::string(
                     "ranks 0 and 1 hold different bits (of two ranks, nobody "
                     "can tell which is right)")
               : c10::str("no majority of the ", all.size(), " ranks holds the same bits");
  }
  std::vector<int> wrong;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != all[*right]) {
      wrong.push_back(static_cast<int>(rank));
    }
  }
  return c10::str(rank_names(wrong), wrong.size() == 1 ? " holds" : " hold",
                  " other bits than the ", all.size() - wrong.size(), " others");
}

}  // namespace

DigestDifference difference_of(const std::vector<std::string>& names,
                               const std::vector<std::string>& all) {
  std::string first;
  int64_t count = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool equal = std::all_of(all.begin(), all.end(), [&](const std::string& rank) {
      return value_at(rank, i) == value_at(all[0], i);
    });
    if (!equal && count++ == 0) {
      first = names[i];
    }
  }
  return {
      c10::str(who_differs(all), ", first in ", first.empty() ? "their number of arrays" : first,
               " (", count, " of ", names.size(), " arrays)"),
      first};
}

}  // namespace lockstep::detail
