#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <string>
#include <tuple>

namespace lockstep {

/// Options of MuonOptimizer for matrices: names and defaults of torch.optim.Muon.
/// Threads and ranks: a plain value, the same on every rank.
struct MuonOptions : public torch::optim::OptimizerCloneableOptions<MuonOptions> {
  using Coefficients = std::tuple<double, double, double>;

  explicit MuonOptions(double lr = 1e-3) : lr_(lr) {}
  TORCH_ARG(double, lr);                  // Requires: >= 0
  TORCH_ARG(double, weight_decay) = 0.1;  // decoupled. Requires: >= 0
  TORCH_ARG(double, momentum) = 0.95;     // Requires: >= 0
  TORCH_ARG(bool, nesterov) = true;
  /// Of the polynomial of the Newton-Schulz iteration.
  TORCH_ARG(Coefficients, ns_coefficients) = std::make_tuple(3.4445, -4.7750, 2.0315);
  TORCH_ARG(double, eps) = 1e-7;     // smallest norm that a matrix is divided by
  TORCH_ARG(int64_t, ns_steps) = 5;  // Requires: >= 0 and < 100
  /// Factor on the learning rate of a matrix of A rows and B columns: "original",
  /// sqrt(max(1, A / B)); "match_rms_adamw", 0.2 sqrt(max(A, B)), for rates tuned for AdamW.
  TORCH_ARG(std::string, adjust_lr_fn) = "original";

 public:
  /// Throws an Error that names the option with a value out of range.
  void validate() const;
  /// lr times the factor of adjust_lr_fn.
  double adjusted_lr(int64_t rows, int64_t columns) const;

  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(double lr) override { lr_ = lr; }
};

}  // namespace lockstep
