#include <lockstep/checkpointing/activation/checkpoint_plan.h>
#include <lockstep/checkpointing/activation/segment_memory.h>
#include <lockstep/collectives/error.h>

#include <algorithm>

namespace lockstep {

namespace {

using Piece = CheckpointPlan::Piece;
using activation::Before;
using activation::Pass;
using activation::SegmentMemory;

std::size_t last_stage(const Piece& piece) {
  return piece.is_region() ? last_stage(piece.pieces.back())
                           : static_cast<std::size_t>(piece.stage);
}

class Prediction {
 public:
  explicit Prediction(const ChainCosts& costs) : costs_(costs), memory_(costs) {}

  /// The segment from piece `index`, whose first stage is `first`, to the last of these pieces.
  PlanCosts of(const std::vector<Piece>& pieces, std::size_t index, std::size_t first,
               Before before, Pass pass) const {
    const Piece& piece = pieces[index];
    const std::size_t last = last_stage(pieces.back());
    const std::size_t end = last_stage(piece);
    PlanCosts total;
    if (piece.is_region()) {
      total = of(piece.pieces, 0, first, Before::nothing, Pass::recompute);
      for (std::size_t stage = first; stage <= end; ++stage) {
        total.seconds += costs_[stage].forward_seconds;
        total.peak_bytes =
            std::max(total.peak_bytes, memory_.passing(stage, stage == first, last, pass));
      }
    } else {
      total = {costs_[first].forward_seconds + costs_[first].backward_seconds,
               memory_.keeping(first, last, before, pass)};
    }
    if (index + 1 < pieces.size()) {
      const PlanCosts rest = of(pieces, index + 1, end + 1,
                                piece.is_region() ? Before::region : Before::kept_stage, pass);
      total.seconds += rest.seconds;
      total.peak_bytes = std::max(total.peak_bytes, rest.peak_bytes);
    }
    total.peak_bytes += memory_.held(first, before, piece.is_region());
    return total;
  }

 private:
  const ChainCosts& costs_;
  SegmentMemory memory_;
};

}  // namespace

PlanCosts CheckpointPlan::predict(const ChainCosts& costs) const {
  LOCKSTEP_CHECK(static_cast<int64_t>(costs.size()) == stages_, "CheckpointPlan: the plan is for ",
                 stages_, " stages, costs are given for ", costs.size());
  return Prediction(costs).of(pieces_, 0, 0, Before::nothing, Pass::first);
}

}  // namespace lockstep
