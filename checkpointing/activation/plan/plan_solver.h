#pragma once

#include <lockstep/checkpointing/activation/checkpoint_plan.h>
#include <lockstep/checkpointing/activation/recompute/segment_memory.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::activation {

/// What to do first with a segment first..last of a chain: keep runs stage `first` with all kept
/// and goes on behind it; a number n runs first..n-1 as a region and goes on with n..last.
using Decision = int16_t;
constexpr Decision keep_first = 0;

/// Numbers the segments of a chain of `stages` stages.
class Segments {
 public:
  explicit Segments(std::size_t stages) : stages_(stages) {}
  std::size_t count() const { return stages_ * stages_; }
  std::size_t operator()(std::size_t first, std::size_t last) const {
    return first * stages_ + last;
  }

 private:
  std::size_t stages_;
};

/// The least time within the budget, of the plans that sizes rounded up to slots tell apart; none
/// if no plan fits then. Rounding takes memory that a run does not: what up to an eighth more slots
/// would allow is found with them, and taken where its bytes fit.
std::optional<CheckpointPlan> fastest_plan(const ChainCosts& costs, int64_t slot,
                                           int64_t budget_bytes);

/// The least memory, and a plan that needs no more.
struct LeastMemory {
  int64_t memory;
  CheckpointPlan plan;
};
LeastMemory least_memory(const SegmentMemory& memory);

/// The pieces that decisions add up to; decide(first, last, used, before) gives the decision for a
/// segment when `used` of the memory is taken by what waits for backward, not counting what the
/// piece before the segment holds.
template <class Decide>
std::vector<CheckpointPlan::Piece> pieces_of(const SegmentMemory& memory, std::size_t first,
                                             std::size_t last, int64_t used, const Decide& decide) {
  std::vector<CheckpointPlan::Piece> pieces;
  Before before = Before::nothing;
  while (first <= last) {
    const Decision decision = decide(first, last, used, before);
    used += memory.held(first, before, decision != keep_first);
    if (decision == keep_first) {
      pieces.push_back({static_cast<int64_t>(first), {}});
      before = Before::kept_stage;
      ++first;
    } else {
      const auto end = static_cast<std::size_t>(decision);
      pieces.push_back({-1, pieces_of(memory, first, end - 1, used, decide)});
      before = Before::region;
      first = end;
    }
  }
  return pieces;
}

}  // namespace lockstep::activation
