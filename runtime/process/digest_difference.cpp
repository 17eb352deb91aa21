#include <c10/util/StringUtil.h>
#include <lockstep/collectives/impl/odd_ranks.h>
#include <lockstep/collectives/impl/rank_names.h>
#include <lockstep/runtime/process/impl/digest_difference.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace lockstep::detail {
namespace {

uint64_t value_at(const std::string& bytes, size_t index) {
  uint64_t value = 0;
  if ((index + 1) * sizeof(value) <= bytes.size()) {
    std::memcpy(&value, bytes.data() + index * sizeof(value), sizeof(value));
  }
  return value;
}

std::string who_differs(const OddRanks& odd, size_t ranks) {
  if (!odd.has_majority) {
    return ranks == 2 ? std::string(
                            "ranks 0 and 1 hold different bits (of two ranks, nobody "
                            "can tell which is right)")
                      : c10::str("no majority of the ", ranks, " ranks holds the same bits");
  }
  return c10::str(rank_names(odd.ranks), odd.ranks.size() == 1 ? " holds" : " hold",
                  " other bits than the ", ranks - odd.ranks.size(), " others");
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
  const OddRanks odd = odd_ranks(all).value_or(OddRanks());
  return {c10::str(who_differs(odd, all.size()), ", first in ",
                   first.empty() ? "their number of arrays" : first, " (", count, " of ",
                   names.size(), " arrays)"),
          first, odd.ranks};
}

}  // namespace lockstep::detail
