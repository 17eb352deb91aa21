#include <lockstep/amp/model.h>
#include <lockstep/amp/optimizer.h>
#include <torch/optim/optimizer.h>

namespace lockstep {

int OptimizerSpec::group_of(const ModelTensor& parameter) const {
  for (size_t i = predicates_.size(); i > 0; --i) {
    if (predicates_[i - 1](parameter)) {
      return static_cast<int>(i);
    }
  }
  return 0;
}

bool OptimizerSpec::needs_whole(const ModelTensor& parameter) const {
  return rule(group_of(parameter))->whole_parameters();
}

std::unique_ptr<torch::optim::Optimizer> OptimizerSpec::build(std::vector<at::Tensor>) const {
  return nullptr;
}

}  // namespace lockstep
