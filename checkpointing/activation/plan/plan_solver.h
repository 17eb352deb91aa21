#pragma once

#include <lockstep/checkpointing/activation/checkpoint_plan.h>
#include <lockstep/checkpointing/activation/recompute/segment_memory.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::activation {

/// The first step for a segment first..last of a chain. keep_first: stage `first` keeps its
/// activations, then solve first+1..last. n: stages first..n-1 are a region, then solve n..last.
using Decision = int16_t;
constexpr Decision keep_first = 0;

/// The index of each segment of a chain of `stages` stages.
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

/// The fastest plan within the budget, with sizes rounded up to slots; empty if no plan fits. A run
/// needs less memory than rounded sizes say, so the search also tries up to an eighth more slots
/// and takes such a plan if its exact bytes fit.
std::optional<CheckpointPlan> fastest_plan(const ChainCosts& costs, int64_t slot,
                                           int64_t budget_bytes);

/// The least memory of all plans, and a plan that needs it.
struct LeastMemory {
  int64_t memory;
  CheckpointPlan plan;
};
LeastMemory least_memory(const SegmentMemory& memory);

/// The pieces of a plan by its decisions. decide(first, last, used, before) returns the decision
/// for a segment. `used`: memory held until backward, without that of the piece before the segment.
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
