#pragma once

#include <vector>

#include "doctor/finding.h"
#include "doctor/rank_facts.h"

namespace lockstep::doctor {

/// A check of the facts of all ranks (in rank order). A pure function.
struct FactCheck {
  const char* name;
  Finding (*run)(const std::vector<RankFacts>& ranks);
};

/// All checks, in the order of the table.
const std::vector<FactCheck>& fact_checks();

}  // namespace lockstep::doctor
