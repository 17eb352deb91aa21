#pragma once

#include <lockstep/amp/model.h>
#include <lockstep/amp/optimizers.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>

#include <string>
#include <vector>

#include <cstdint>
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

/// Muon (Jordan et al., 2024) for the matrices of hidden layers, AdamW for all other parameters.
///
/// The momentum of a matrix is made nearly orthogonal by a Newton-Schulz iteration in bf16, and is
/// the direction of the update. The operations are those of torch.optim.Muon and, for the rest, of
/// torch.optim.AdamW (not fused, not foreach), in their order: with as many compute threads of one
/// LibTorch the weights have the same bits.
///
///   Trainer trainer(runtime, model,
///                   MuonOptimizer::of(model, MuonOptions(0.02), torch::optim::AdamWOptions(3e-4),
///                                     {"embedding", "head"}));
///
/// On a CPU the bits of matrix products depend on the number of compute threads and on the kind of
/// processor. Ranks that differ in these hold other weights after an update, and the comparison of
/// replicas ends the run (exit code 21). So a Trainer refuses other numbers of threads and other
/// vector instructions when it is made. Set the same OMP_NUM_THREADS (RuntimeOptions::threads) on
/// every rank, and use processors of one model: others may still round differently.
///
/// With shard_optimizer each matrix has one rank that keeps its momentum and does its iteration,
/// and the ranks gather the new weights: no condition on threads and processors, and less memory
/// and time where there are more large matrices than ranks (TrainerOptions::shard_optimizer). The
/// rest is cut into equal shards.
///
/// Group 0 has the matrices, group 1 the rest, each with its own learning rate and the Trainer's
/// schedule. It runs on the masters, as a TorchOptimizer does. So cuda_graph is refused. Snapshots
/// hold its state.
class MuonOptimizer final : public torch::optim::Optimizer {
 public:
  /// For a Trainer of `model`. The rest: parameters that do not have two dimensions, and those
  /// whose name is an element of `rest_names` or begins with one and a dot: embeddings and output
  /// layers belong there. Throws Error for a name that no parameter has, for options out of range,
  /// and if no parameter, trainable or frozen, is a matrix. All matrices or all of the rest may be
  /// frozen: then their group is empty.
  static TorchOptimizer of(const Model& model, MuonOptions options,
                           torch::optim::AdamWOptions rest_options,
                           std::vector<std::string> rest_names = {});

  /// `matrices` need two dimensions. `matrices` or `rest` may be empty: there are always two
  /// groups. amsgrad is refused.
  MuonOptimizer(std::vector<at::Tensor> matrices, MuonOptions options, std::vector<at::Tensor> rest,
                torch::optim::AdamWOptions rest_options);

  /// Updates the parameters that have a gradient.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// True for a parameter of group 0, whose state is a torch::optim::SGDParamState; the others have
  /// a torch::optim::AdamWParamState.
  bool is_matrix(const at::Tensor& parameter) const;

 private:
  void update_matrix(const at::Tensor& parameter, const MuonOptions& options);
  void update_rest(const at::Tensor& parameter, const torch::optim::AdamWOptions& options);
};

}  // namespace lockstep
