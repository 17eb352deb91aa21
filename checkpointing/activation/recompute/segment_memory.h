#pragma once

#include <lockstep/checkpointing/activation/impl/chain_costs.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep::activation {

/// What precedes a segment; it may hold the segment's input.
enum class Before { nothing, kept_stage, region };

/// Which forward: that of the whole chain, or a recompute for a region's backward.
enum class Pass { first, recompute };

/// The memory model of plans, in any unit: that of rotor (Beaumont et al.), except that an output
/// is held only if its stage, the next one, or a region that starts there needs it. For a segment
/// first..last it counts memory besides the segment's input: in recompute the gradient of its
/// output, and
///   - while stages run forward with nothing kept, one stage's input, output and temporary;
///   - while a stage runs with all kept, its input, what it keeps and its temporary;
///   - while its backward runs, its output's gradient, what it keeps, and its temporary.
/// A region cannot begin with a stage that changes its input.
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

  /// Sizes in slots of `slot` bytes, rounded up; 1: exact bytes.
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

  /// What the piece before `first` holds until its own backward. by_region: a region starts at
  /// `first`.
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

  /// Forward of `stage` with nothing kept, in a segment that ends in `last`.
  int64_t passing(std::size_t stage, bool is_first, std::size_t last, Pass pass) const {
    const int64_t input = is_first ? 0 : stages[stage - 1].output;
    return gradient(last, pass) + input + stages[stage].output + stages[stage].passing_temporary;
  }

  /// Forward with all kept, and backward, of the first stage of a segment that ends in `last`.
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
