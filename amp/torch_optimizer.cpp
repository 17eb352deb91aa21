#include <lockstep/amp/optimizers.h>
#include <lockstep/collectives/error.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <algorithm>

namespace lockstep {

namespace {

void check_parameters(const torch::optim::Optimizer& optimizer,
                      const std::vector<at::Tensor>& masters) {
  size_t held = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      ++held;
      const bool ours = std::any_of(masters.begin(), masters.end(), [&](const at::Tensor& master) {
        return master.is_same(parameter);
      });
      LOCKSTEP_CHECK(ours,
                     "TorchOptimizer: the factory's optimizer holds a parameter that is no master: "
                     "give it the tensors passed to the factory, not model->parameters()");
    }
  }
  LOCKSTEP_CHECK(held > 0, "TorchOptimizer: the factory's optimizer holds no parameter");
}

}  // namespace

std::unique_ptr<torch::optim::Optimizer> OptimizerSpec::build(std::vector<at::Tensor>) const {
  return nullptr;
}

std::unique_ptr<torch::optim::Optimizer> TorchOptimizer::build(
    std::vector<at::Tensor> masters) const {
  validate();
  auto optimizer = factory_(masters);
  LOCKSTEP_CHECK(optimizer != nullptr, "TorchOptimizer: the factory returned no optimizer");
  LOCKSTEP_CHECK(dynamic_cast<torch::optim::LBFGS*>(optimizer.get()) == nullptr,
                 "TorchOptimizer: LBFGS evaluates a closure several times in one step, which a "
                 "shared step cannot do: use AdamW, Adam, SGD or another first-order optimizer");
  check_parameters(*optimizer, masters);
  return optimizer;
}

std::shared_ptr<const amp::UpdateRule> TorchOptimizer::rule(int) const {
  throw Error("TorchOptimizer: it has no fused rule; use build()");
}

double TorchOptimizer::learning_rate(int) const {
  return 1.0;
}

std::string TorchOptimizer::describe() const {
  return "torch::optim optimizer from a factory";
}

void TorchOptimizer::validate() const {
  LOCKSTEP_CHECK(factory_ != nullptr, "TorchOptimizer: the factory is empty");
}

std::shared_ptr<OptimizerSpec> TorchOptimizer::clone() const {
  return std::make_shared<TorchOptimizer>(*this);
}

}  // namespace lockstep
