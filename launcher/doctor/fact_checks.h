#pragma once

#include <vector>

#include "doctor/finding.h"
#include "doctor/rank_facts.h"

namespace lockstep::doctor {

/// A check of what the ranks know: `ranks` in rank order. Pure.
struct FactCheck {
  const char* name;
  Finding (*run)(const std::vector<RankFacts>& ranks);
};

/// All of them, in the order of the table.
const std::vector<FactCheck>& fact_checks();

}  // namespace lockstep::doctor
