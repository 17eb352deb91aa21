#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <string>
#include <vector>

namespace lockstep::detail {

/// How the arrays of some ranks differ from those of the others.
struct DigestDifference {
  std::string text;        // which ranks differ from the majority, and in what
  std::string first;       // name of the first array that differs
  std::vector<int> ranks;  // Error::ranks()
};

/// Compares the ranks' digests of their arrays: 8 bytes an array, in the order of `names`. Requires
/// that the digests of at least two ranks differ.
DigestDifference difference_of(const std::vector<std::string>& names,
                               const std::vector<std::string>& digests_of_ranks);

}  // namespace lockstep::detail
