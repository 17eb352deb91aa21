#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/activation/chain.h>
#include <lockstep/checkpointing/activation/chain_costs.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// What a plan costs: activation bytes at the peak (weights and the chain's input not counted, the
/// gradient of its output counted), and seconds of one forward and backward.
struct PlanCosts {
  double seconds = 0;
  int64_t peak_bytes = 0;
};

/// Which stages of a chain are checkpointed regions, nested as needed. As text: the numbers of the
/// stages in order, with parentheses around each region, as in "(0 1 (2 3) 4) 5 6".
class CheckpointPlan {
 public:
  /// A stage, or a region of pieces.
  struct Piece {
    int64_t stage = -1;  // of a region, -1
    std::vector<Piece> pieces;
    bool is_region() const noexcept { return stage < 0; }
  };

  /// Throws lockstep::Error unless pieces hold the stages 0, 1, ... in order and no empty region.
  explicit CheckpointPlan(std::vector<Piece> pieces);
  static CheckpointPlan parse(const std::string& text);
  /// `segments` regions of equal length, but for the last segment, which stays plain.
  static CheckpointPlan uniform(int64_t stages, int64_t segments);
  /// uniform() with the square root of the stages as segments.
  static CheckpointPlan automatic(int64_t stages);

  std::string text() const;
  void save(const std::string& path) const;
  static CheckpointPlan load(const std::string& path);

  int64_t stages() const noexcept { return stages_; }
  const std::vector<Piece>& pieces() const noexcept { return pieces_; }

  /// What the plan costs on a chain of such stages. Throws lockstep::Error if their number differs.
  PlanCosts predict(const ChainCosts& costs) const;
  /// Runs the chain as planned. Throws lockstep::Error if the number of stages differs.
  at::Tensor run(const Chain& chain, at::Tensor input) const;
  /// The same for a chain that is run often: it is shared with the regions, not copied.
  at::Tensor run(std::shared_ptr<const Chain> chain, at::Tensor input) const;

 private:
  std::vector<Piece> pieces_;
  int64_t stages_ = 0;
};

}  // namespace lockstep
