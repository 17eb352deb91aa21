#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/amp/model.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep {

class Trainer;

/// Puts a module and its submodules in eval mode while the object lives. The destructor gives each
/// submodule the mode that it had, also when an exception passes: a submodule that was in eval mode
/// before, such as a frozen batch norm, stays so. Ranks: local. Threads: one.
class EvalMode {
 public:
  [[nodiscard]] explicit EvalMode(torch::nn::Module& module);
  [[nodiscard]] explicit EvalMode(const torch::jit::Module& module);
  template <typename M>
  [[nodiscard]] explicit EvalMode(const torch::nn::ModuleHolder<M>& holder)
      : EvalMode(static_cast<torch::nn::Module&>(*holder.ptr())) {}
  template <typename M>
  [[nodiscard]] explicit EvalMode(const std::shared_ptr<M>& module)
      : EvalMode(static_cast<torch::nn::Module&>(*module)) {}
  ~EvalMode();
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  std::function<void()> restore_;
};

/// Replaces the weights and the floating-point buffers of a model, such as the running statistics
/// of batch norm, by their moving averages (TrainerOptions::ema) while the object lives. The
/// destructor puts back their bits, also when an exception passes. The averages are rounded to the
/// dtype of the model; masters, moments and integer buffers do not change. Costs one copy of the
/// trainable weights and of the buffers, and another of weights that the ranks of a node share.
///
///   const lockstep::AveragedWeights averaged(trainer, model);
///
/// Do not train or save while the object lives. Ranks: every rank makes one. Threads: one. Throws
/// the same Error on every rank without TrainerOptions::ema, or if `model` is not the model of
/// `trainer`.
class AveragedWeights {
 public:
  [[nodiscard]] AveragedWeights(const Trainer& trainer, const Model& model);
  ~AveragedWeights();
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  void restore();

  std::vector<std::pair<at::Tensor, at::Tensor>> saved_;  // weight or buffer, its copy
  std::shared_ptr<const void> lent_;                      // tells the Trainer that it lives
};

}  // namespace lockstep
