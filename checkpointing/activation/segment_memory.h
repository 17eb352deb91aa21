#pragma once

#include <lockstep/checkpointing/activation/chain_costs.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep::activation {

/// The memory model that plans are predicted and solved with (Beaumont et al., rotor), in any unit
/// of memory. Of the stages first..last as one segment it counts what is needed besides the
/// segment's input: always the gradient of its output, and
///   - while stages run forward with nothing kept, one stage's input, output and temporary;
///   - while a stage runs with all kept, what it keeps and its temporary;
///   - while its backward runs, its output's gradient, what it keeps, and its temporary.
struct SegmentMemory {
  struct Stage {
    int64_t output;
    int64_t saved;
    int64_t forward_temporary;
    int64_t backward_temporary;
  };
  std::vector<Stage> stages;

  /// In slots of `slot` bytes, each size rounded up; 1 is exact.
  explicit SegmentMemory(const ChainCosts& costs, int64_t slot = 1) {
    const auto slots = [slot](int64_t bytes) { return (bytes + slot - 1) / slot; };
    for (const StageCosts& c : costs) {
      stages.push_back({slots(c.output_bytes), slots(c.saved_bytes),
                        slots(c.forward_temporary_bytes), slots(c.backward_temporary_bytes)});
    }
  }

  int64_t gradient(std::size_t last) const { return stages[last].output; }

  /// Forward of `stage`, the first or a later one of a segment that ends in `last`, nothing kept.
  int64_t passing(std::size_t stage, bool is_first, std::size_t last) const {
    const int64_t input = is_first ? 0 : stages[stage - 1].output;
    return gradient(last) + input + stages[stage].output + stages[stage].forward_temporary;
  }

  /// Forward, all kept, and backward of the first stage of a segment that ends in `last`.
  int64_t keeping(std::size_t stage, std::size_t last) const {
    const Stage& s = stages[stage];
    return s.saved +
           std::max(gradient(last) + s.forward_temporary, gradient(stage) + s.backward_temporary);
  }
};

}  // namespace lockstep::activation
