#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// Which ranks hold another value than the others.
struct OddRanks {
  std::vector<int> ranks;     // the ranks to blame, ascending: Error::ranks()
  bool has_majority = false;  // false: `ranks` are all ranks
  size_t first = 0;           // one of `ranks`, and
  size_t reference = 0;       // a rank with another value: of the majority, if there is one
};

/// `values`: of all ranks, in rank order. A value that more than half of the ranks hold is right;
/// without one nobody can tell which is. Nothing if all values are equal.
std::optional<OddRanks> odd_ranks(const std::vector<std::string>& values);

}  // namespace lockstep::detail
