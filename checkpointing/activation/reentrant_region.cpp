#include <c10/core/GradMode.h>
#include <c10/util/Type.h>
#include <lockstep/checkpointing/activation/recomputing.h>
#include <lockstep/checkpointing/activation/reentrant_region.h>
#include <lockstep/checkpointing/activation/saved_slot.h>
#include <lockstep/checkpointing/activation/scratch_buffers.h>
#include <lockstep/collectives/error.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace lockstep::activation {

namespace {

/// The leaves that the tensors' graph accumulates gradients in.
std::vector<at::Tensor> leaves_of(const std::vector<at::Tensor>& tensors) {
  using torch::autograd::AccumulateGrad;
  using torch::autograd::Node;
  std::vector<Node*> open;
  for (const at::Tensor& tensor : tensors) {
    open.push_back(tensor.grad_fn().get());
  }
  std::unordered_set<Node*> seen;
  std::vector<at::Tensor> leaves;
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) {
      continue;
    }
    if (const auto* leaf = dynamic_cast<AccumulateGrad*>(node)) {
      leaves.push_back(leaf->variable);
    }
    for (const auto& edge : node->next_edges()) {
      open.push_back(edge.function.get());
    }
  }
  return leaves;
}

}  // namespace

ReentrantRegion::ReentrantRegion(CheckpointOptions options, std::vector<at::Tensor> inputs,
                                 std::vector<at::Tensor> parameters)
    : options_(std::move(options)), execution_(ExecutionState::current()), inputs_(inputs.size()) {
  if (options_.preserve_rng()) {
    rng_ = RngState::current();
  }
  std::vector<at::Tensor> all = std::move(inputs);
  std::unordered_set<const c10::TensorImpl*> listed;
  const auto add_trainable = [&](const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined() && tensor.requires_grad() &&
          listed.insert(tensor.unsafeGetTensorImpl()).second) {
        all.push_back(tensor);
      }
    }
  };
  add_trainable(parameters);
  add_trainable(options_.parameters());
  for (const at::Tensor& tensor : all) {
    saved_.emplace_back(tensor, /*is_output=*/false);
    requires_grad_.push_back(tensor.defined() && tensor.requires_grad());
    add_next_edge(requires_grad_.back() ? torch::autograd::impl::gradient_edge(tensor)
                                        : torch::autograd::Edge());
  }
}

bool ReentrantRegion::is_needed() const {
  return std::find(requires_grad_.begin(), requires_grad_.end(), true) != requires_grad_.end();
}

void ReentrantRegion::attach(const std::vector<at::Tensor*>& outputs) {
  const std::shared_ptr<Node> self = getptr();
  for (at::Tensor* output : outputs) {
    ++outputs_;
    if (!output->defined()) {
      add_input_metadata(undefined_input{});
      continue;
    }
    const bool needs_gradient = output->requires_grad();
    *output = output->tensor_data();
    const uint32_t number = add_input_metadata(*output);
    if (needs_gradient) {
      torch::autograd::impl::set_gradient_edge(*output, {self, number});
    }
  }
}

torch::autograd::variable_list ReentrantRegion::apply(torch::autograd::variable_list&& gradients) {
  LOCKSTEP_CHECK(!c10::GradMode::is_enabled(), region_name(),
                 ": a gradient of gradients (create_graph) needs saved-tensor hooks, which this "
                 "build of lockstep has not: run the function without checkpoint()");
  std::vector<at::Tensor> tensors = unpack();
  const std::vector<at::Tensor> outputs =
      recompute(std::vector<at::Tensor>(tensors.begin(), tensors.begin() + inputs_));
  std::vector<at::Tensor> roots;
  std::vector<at::Tensor> root_gradients;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (gradients[i].defined() && outputs[i].requires_grad()) {
      roots.push_back(outputs[i]);
      root_gradients.push_back(gradients[i]);
    }
  }
  require_listed(roots, tensors);
  std::vector<at::Tensor> wanted;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (task_should_compute_output(i)) {
      wanted.push_back(tensors[i]);
    }
  }
  torch::autograd::variable_list result(tensors.size());
  if (roots.empty() || wanted.empty()) {
    return result;
  }
  const auto found = torch::autograd::grad(roots, wanted, root_gradients, /*retain_graph=*/false,
                                           /*create_graph=*/false, /*allow_unused=*/true);
  auto next = found.begin();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (task_should_compute_output(i)) {
      result[i] = *next++;
    }
  }
  return result;
}

std::vector<at::Tensor> ReentrantRegion::unpack() const {
  std::vector<at::Tensor> tensors;
  for (std::size_t i = 0; i < saved_.size(); ++i) {
    const at::Tensor tensor = saved_[i].unpack();
    const bool is_input = i < inputs_;
    tensors.push_back(tensor.defined() && is_input
                          ? tensor.detach().set_requires_grad(requires_grad_[i])
                          : tensor);
  }
  return tensors;
}

std::vector<at::Tensor> ReentrantRegion::recompute(const std::vector<at::Tensor>& inputs) {
  std::optional<RngGuard> rng;
  if (rng_.has_value()) {
    rng.emplace(*rng_);
  }
  std::vector<at::Tensor> buffers = module_buffers();
  buffers.insert(buffers.end(), options_.buffers().begin(), options_.buffers().end());
  const ExecutionGuard execution(execution_);
  const RecomputingScope recomputing;
  const ScratchBuffers scratch(std::move(buffers));
  std::vector<at::Tensor> outputs = run_again(inputs);
  LOCKSTEP_CHECK(outputs.size() == outputs_, region_name(), ": recompute returns ", outputs.size(),
                 " tensors, forward returned ", outputs_,
                 ": the function must do the same each time");
  for (std::size_t i = 0; options_.determinism_check() && i < outputs.size(); ++i) {
    LOCKSTEP_CHECK(!outputs[i].defined() || input_metadata(i).is_same_shape(outputs[i]),
                   region_name(), ": output ", i, " is ", TensorLayout(outputs[i]).text(),
                   " in recompute, of another shape than in forward: the function must do the "
                   "same each time");
  }
  return outputs;
}

void ReentrantRegion::require_listed(const std::vector<at::Tensor>& outputs,
                                     const std::vector<at::Tensor>& listed) const {
  for (const at::Tensor& leaf : leaves_of(outputs)) {
    const auto is_leaf = [&](const at::Tensor& tensor) { return tensor.is_same(leaf); };
    LOCKSTEP_CHECK(std::any_of(listed.begin(), listed.end(), is_leaf), region_name(),
                   ": the function uses a tensor (", TensorLayout(leaf).text(),
                   ") that needs a gradient and is neither an input nor a parameter of its module: "
                   "name it with CheckpointOptions().parameters(), or pass it as an input");
  }
}

void ReentrantRegion::release_variables() {
  for (auto& saved : saved_) {
    saved.reset_data();
  }
}

std::string ReentrantRegion::region_name() const {
  return c10::str("checkpoint of ", options_.name().empty() ? c10::demangle(function_type().name())
                                                            : "'" + options_.name() + "'");
}

}  // namespace lockstep::activation
