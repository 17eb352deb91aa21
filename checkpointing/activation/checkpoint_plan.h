#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/activation/chain.h>

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/checkpointing/activation/impl/chain_costs.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// The predicted costs of a plan: peak activation bytes (without weights and the input of the
/// chain, with the gradient of its output), and seconds of one forward and backward.
struct PlanCosts {
  double seconds = 0;
  int64_t peak_bytes = 0;
};

/// Divides the stages of a chain into checkpointed regions and plain stages. Regions may be nested.
/// As text, such as "(0 1 (2 3) 4) 5 6": the stage numbers in order, with parentheses around each
/// region.
class CheckpointPlan {
 public:
  /// One stage, or a region that consists of pieces.
  struct Piece {
    int64_t stage = -1;  // -1 for a region
    std::vector<Piece> pieces;
    bool is_region() const noexcept { return stage < 0; }
  };

  /// Throws lockstep::Error unless `pieces` holds the stages 0, 1, ... in order, and no empty
  /// region.
  explicit CheckpointPlan(std::vector<Piece> pieces);
  static CheckpointPlan parse(const std::string& text);
  /// Divides the stages into `segments` segments of equal length. Each is a region except for the
  /// last, which is plain and takes the remainder.
  static CheckpointPlan uniform(int64_t stages, int64_t segments);
  /// uniform() with the square root of the number of stages, rounded, as the number of segments.
  static CheckpointPlan automatic(int64_t stages);

  std::string text() const;
  void save(const std::string& path) const;
  static CheckpointPlan load(const std::string& path);

  int64_t stages() const noexcept { return stages_; }
  const std::vector<Piece>& pieces() const noexcept { return pieces_; }

  /// Predicts the costs of the plan for a chain with these costs. Throws lockstep::Error if the
  /// number of stages differs.
  PlanCosts predict(const ChainCosts& costs) const;
  /// Runs the chain by this plan. Throws lockstep::Error if the number of stages differs.
  at::Tensor run(const Chain& chain, at::Tensor input) const;
  /// As above, for a chain that runs often: the regions share the chain instead of copying it.
  at::Tensor run(std::shared_ptr<const Chain> chain, at::Tensor input) const;

 private:
  std::vector<Piece> pieces_;
  int64_t stages_ = 0;
};

}  // namespace lockstep
