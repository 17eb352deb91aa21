#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/activation/checkpoint_options.h>
#include <lockstep/checkpointing/activation/execution_state.h>
#include <lockstep/checkpointing/activation/rng_state.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

namespace lockstep::activation {

/// One forward of a checkpointed function where LibTorch offers no hook for saved tensors: a node
/// of the graph that stands for the whole function. The graph of its forward is dropped when it
/// returns (it is recorded at all since some operators round differently without). The node's
/// backward runs the function again and asks grad() for the gradients of its inputs and parameters,
/// which leave by the node's own edges, so that each parameter accumulates once.
///
/// It cannot do all that Region does: no double backward; recompute is never cut short; a hook of
/// Tensor::register_hook on a weight also sees each region's share of the gradient; the weights of
/// a free function must be listed (CheckpointOptions::parameters), else backward throws.
class ReentrantRegion : public torch::autograd::Node {
 protected:
  ReentrantRegion(CheckpointOptions options, std::vector<at::Tensor> inputs,
                  std::vector<at::Tensor> parameters);

  /// Whether backward has anything to compute.
  bool is_needed() const;
  /// Makes the tensors, which the function has returned, results of this node instead.
  void attach(const std::vector<at::Tensor*>& outputs);

  /// Runs the function on inputs like those of the constructor and returns the outputs.
  virtual std::vector<at::Tensor> run_again(const std::vector<at::Tensor>& inputs) = 0;
  virtual std::vector<at::Tensor> module_buffers() const = 0;
  virtual const std::type_info& function_type() const = 0;

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  void release_variables() override;
  std::vector<at::Tensor> unpack() const;
  std::vector<at::Tensor> recompute(const std::vector<at::Tensor>& inputs);
  void require_listed(const std::vector<at::Tensor>& outputs,
                      const std::vector<at::Tensor>& listed) const;
  std::string region_name() const;

  const CheckpointOptions options_;
  std::optional<RngState> rng_;
  const ExecutionState execution_;
  std::vector<torch::autograd::SavedVariable> saved_;  // inputs, then parameters
  std::vector<bool> requires_grad_;
  std::size_t inputs_;
  std::size_t outputs_ = 0;
};

}  // namespace lockstep::activation
