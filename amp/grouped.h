#pragma once

#include <lockstep/collectives/error.h>

#include <string>
#include <vector>

namespace lockstep::amp {

/// The options of a group: the base rule's own for 0, else those given with the group.
template <typename Spec>
const Spec& options_of(const Spec& base, const std::vector<Spec>& groups, int group) {
  LOCKSTEP_CHECK(group >= 0 && group <= static_cast<int>(groups.size()),
                 "optimizer: there is no group ", group, ", only 0 to ", groups.size());
  return group == 0 ? base : groups[static_cast<size_t>(group) - 1];
}

/// Throws Error where a group has no predicate, wrong options, or groups of its own.
template <typename Predicate, typename Spec>
void check_groups(const char* optimizer, const std::vector<Predicate>& predicates,
                  const std::vector<Spec>& groups) {
  for (size_t i = 0; i < groups.size(); ++i) {
    LOCKSTEP_CHECK(predicates[i] != nullptr, optimizer, ": group ", i + 1,
                   " has no predicate that picks its parameters");
    LOCKSTEP_CHECK(groups[i].groups() == 1, optimizer, ": the options of group ", i + 1,
                   " have groups of their own; add them to the optimizer itself");
    groups[i].validate();
  }
}

/// ", 2 groups"
inline std::string count_groups(int groups) {
  return c10::str(", ", groups, groups == 1 ? " group" : " groups");
}

}  // namespace lockstep::amp
