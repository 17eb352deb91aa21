#pragma once

#include <lockstep/runtime/runtime.h>

#include "doctor/rank_facts.h"

namespace lockstep::doctor {

/// Fills in facts of this rank alone: build, LibTorch, driver, NCCL, the launcher's rank count.
void read_libraries(RankFacts& facts);

/// Fills in facts of a Runtime: ranks, device, transport, MPI, clocks. Collective.
void read_world(RankFacts& facts, const Runtime& runtime);

}  // namespace lockstep::doctor
