#pragma once

#include <lockstep/checkpointing/activation/impl/chain_costs.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep::activation {

/// What stands before a segment, and holds its input if need be.
enum class Before { nothing, kept_stage, region };

/// When a segment's stages run forward: with the whole chain, or again for a region's backward.
enum class Pass { first, recompute };

/// The memory model that plans are predicted and solved with, in any unit of memory: that of rotor
/// (Beaumont et al.), but an output is held only if its own stage, the next one, or a region that
/// starts there needs it. Of the stages first..last as one segment it counts what is needed besides
/// the segment's input: in recompute the gradient of its output, which is there by then, and
///   - while stages run forward with nothing kept, one stage's input, output and temporary;
///   - while a stage runs with all kept, its input, what it keeps and its temporary;
///   - while its backward runs, its output's gradient, what it keeps, and its temporary.
/// No region begins with a stage that changes its input.
struct SegmentMemory {
  struct Stage {
    int64_t output;
    int64_t saved;
    bool keeps_output;
    bool keeps_input;
    bool has_gradient;
    bool changes_input;
    int64_t forward_temporary;
    int64_t passing_temporary;
    int64_t backward_temporary;
  };
  std::vector<Stage> stages;

  /// In slots of `slot` bytes, each size rounded up; 1 is exact.
  explicit SegmentMemory(const ChainCosts& costs, int64_t slot = 1) {
    const auto slots = [slot](int64_t bytes) { return (bytes + slot - 1) / slot; };
    for (const StageCosts& c : costs) {
      stages.push_back({slots(c.output_bytes), slots(c.saved_bytes), c.keeps_output, c.keeps_input,
                        c.has_gradient, c.changes_input, slots(c.forward_temporary_bytes),
                        slots(c.passing_temporary_bytes), slots(c.backward_temporary_bytes)});
    }
  }

  int64_t gradient(std::size_t last, Pass pass) const {
    return pass == Pass::recompute && stages[last].has_gradient ? stages[last].output : 0;
  }

  /// What the piece before `first` holds until its own backward, if a region or a kept stage
  /// starts there.
  int64_t held(std::size_t first, Before before, bool by_region) const {
    if (before == Before::nothing) {
      return 0;
    }
    const Stage& previous = stages[first - 1];
    const bool next_needs = by_region || stages[first].keeps_input;
    if (before == Before::region) {
      return next_needs ? previous.output : 0;
    }
    return previous.saved + (next_needs && !previous.keeps_output ? previous.output : 0);
  }

  /// Forward of `stage`, the first or a later one of a segment that ends in `last`, nothing kept.
  int64_t passing(std::size_t stage, bool is_first, std::size_t last, Pass pass) const {
    const int64_t input = is_first ? 0 : stages[stage - 1].output;
    return gradient(last, pass) + input + stages[stage].output + stages[stage].passing_temporary;
  }

  /// Forward, all kept, and backward of the first stage of a segment that ends in `last`.
  int64_t keeping(std::size_t first, std::size_t last, Before before, Pass pass) const {
    const Stage& s = stages[first];
    const bool input_is_held = before == Before::nothing || s.keeps_input ||
                               (before == Before::kept_stage && stages[first - 1].keeps_output);
    const int64_t input = input_is_held ? 0 : stages[first - 1].output;
    return s.saved + std::max(gradient(last, pass) + input + s.forward_temporary,
                              s.has_gradient ? s.output + s.backward_temporary : 0);
  }
};

}  // namespace lockstep::activation
