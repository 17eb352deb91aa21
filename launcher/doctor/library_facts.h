#pragma once

#include <lockstep/runtime/runtime.h>

#include "doctor/rank_facts.h"

namespace lockstep::doctor {

/// Fills in what needs no other rank: build, LibTorch, driver, NCCL, the launcher's rank count.
void read_libraries(RankFacts& facts);

/// Fills in what a Runtime knows: ranks, device, transport, MPI, the clocks. Collective.
void read_world(RankFacts& facts, const Runtime& runtime);

}  // namespace lockstep::doctor
