#include <lockstep/checkpointing/activation/checkpoint_plan.h>
#include <lockstep/checkpointing/activation/plan/plan_walk.h>
#include <lockstep/checkpointing/activation/recompute/segment_memory.h>
#include <lockstep/collectives/check.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <utility>

namespace lockstep {

namespace {

using Piece = CheckpointPlan::Piece;
using activation::Before;
using activation::Pass;
using activation::SegmentMemory;
using Pieces = std::vector<Piece>;

void check_order(const Pieces& pieces, int64_t& next) {
  for (const Piece& piece : pieces) {
    if (piece.is_region()) {
      LOCKSTEP_CHECK(!piece.pieces.empty(), "CheckpointPlan: a region holds no stage");
      check_order(piece.pieces, next);
    } else {
      LOCKSTEP_CHECK(piece.stage == next, "CheckpointPlan: stage ", piece.stage,
                     " stands where stage ", next, " is due");
      ++next;
    }
  }
}

void write(std::ostream& out, const Pieces& pieces) {
  const char* gap = "";
  for (const Piece& piece : pieces) {
    out << std::exchange(gap, " ");
    if (piece.is_region()) {
      out << '(';
      write(out, piece.pieces);
      out << ')';
    } else {
      out << piece.stage;
    }
  }
}

Pieces read(std::istringstream& in, bool inside) {
  Pieces pieces;
  for (char c = 0; in >> c;) {
    if (c == '(') {
      pieces.push_back({-1, read(in, true)});
    } else if (c == ')') {
      LOCKSTEP_CHECK(inside, "CheckpointPlan: a ')' without its '(' in '", in.str(), "'");
      return pieces;
    } else {
      in.putback(c);
      Piece piece;
      LOCKSTEP_CHECK(c >= '0' && c <= '9' && in >> piece.stage, "CheckpointPlan: '", c,
                     "' is no stage's number in '", in.str(), "'");
      pieces.push_back(piece);
    }
  }
  LOCKSTEP_CHECK(!inside, "CheckpointPlan: a '(' without its ')' in '", in.str(), "'");
  return pieces;
}

std::size_t last_stage(const Piece& piece) {
  return piece.is_region() ? last_stage(piece.pieces.back())
                           : static_cast<std::size_t>(piece.stage);
}

class Prediction {
 public:
  explicit Prediction(const ChainCosts& costs) : costs_(costs), memory_(costs) {}

  /// The segment from piece `index` (first stage: `first`) to the last of these pieces.
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

CheckpointPlan::CheckpointPlan(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {
  check_order(pieces_, stages_);
  LOCKSTEP_CHECK(stages_ > 0, "CheckpointPlan: the plan holds no stage");
}

CheckpointPlan CheckpointPlan::parse(const std::string& text) {
  std::istringstream in(text);
  return CheckpointPlan(read(in, false));
}

CheckpointPlan CheckpointPlan::uniform(int64_t stages, int64_t segments) {
  LOCKSTEP_CHECK(segments >= 1 && segments <= stages, "CheckpointPlan: segments is ", segments,
                 ", it must be from 1 to the ", stages, " stages");
  const int64_t length = stages / segments;
  Pieces pieces;
  for (int64_t stage = 0; stage < stages; ++stage) {
    const bool plain = stage >= length * (segments - 1);
    if (!plain && stage % length == 0) {
      pieces.emplace_back();
    }
    (plain ? pieces : pieces.back().pieces).push_back({stage, {}});
  }
  return CheckpointPlan(std::move(pieces));
}

CheckpointPlan CheckpointPlan::automatic(int64_t stages) {
  return uniform(stages, std::lround(std::sqrt(static_cast<double>(stages))));
}

std::string CheckpointPlan::text() const {
  std::ostringstream out;
  write(out, pieces_);
  return out.str();
}

void CheckpointPlan::save(const std::string& path) const {
  std::ofstream file(path);
  file << text() << '\n';
  file.close();
  LOCKSTEP_CHECK_CODE(file.good(), ExitCode::environment, "CheckpointPlan: cannot write ", path);
}

CheckpointPlan CheckpointPlan::load(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  LOCKSTEP_CHECK_CODE(file.good() && text.good(), ExitCode::environment,
                      "CheckpointPlan: cannot read ", path);
  return parse(text.str());
}

at::Tensor CheckpointPlan::run(const Chain& chain, at::Tensor input) const {
  return run(std::make_shared<const Chain>(chain), std::move(input));
}

at::Tensor CheckpointPlan::run(std::shared_ptr<const Chain> chain, at::Tensor input) const {
  LOCKSTEP_CHECK(static_cast<int64_t>(chain->size()) == stages_, "CheckpointPlan: the plan is for ",
                 stages_, " stages, the chain has ", chain->size());
  const auto stages = std::make_shared<const activation::PlannedStages>(std::move(chain), pieces_);
  return activation::PlanWalk(stages).run(std::move(input));
}

PlanCosts CheckpointPlan::predict(const ChainCosts& costs) const {
  LOCKSTEP_CHECK(static_cast<int64_t>(costs.size()) == stages_, "CheckpointPlan: the plan is for ",
                 stages_, " stages, costs are given for ", costs.size());
  return Prediction(costs).of(pieces_, 0, 0, Before::nothing, Pass::first);
}

}  // namespace lockstep
