#pragma once

#include <vector>

#include "doctor/finding.h"
#include "doctor/rank_facts.h"

namespace lockstep::doctor {

// The checks of fact_checks() that look at devices, memory, limits, clocks and disks. Pure.

Finding check_device(const std::vector<RankFacts>& ranks);
Finding check_links(const std::vector<RankFacts>& ranks);
Finding check_gpudirect(const std::vector<RankFacts>& ranks);
Finding check_cores(const std::vector<RankFacts>& ranks);
Finding check_shared_memory(const std::vector<RankFacts>& ranks);
Finding check_leftovers(const std::vector<RankFacts>& ranks);
Finding check_limits(const std::vector<RankFacts>& ranks);
Finding check_clocks(const std::vector<RankFacts>& ranks);
Finding check_snapshots(const std::vector<RankFacts>& ranks);

}  // namespace lockstep::doctor
