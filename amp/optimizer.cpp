#include <lockstep/amp/impl/update_rule.h>
#include <lockstep/amp/model.h>
#include <lockstep/amp/optimizer.h>

namespace lockstep {

int OptimizerSpec::group_of(const ModelTensor& parameter) const {
  for (size_t i = predicates_.size(); i > 0; --i) {
    if (predicates_[i - 1](parameter)) {
      return static_cast<int>(i);
    }
  }
  return 0;
}

bool FusedOptimizer::needs_whole(const ModelTensor& parameter) const {
  return rule(group_of(parameter))->whole_parameters();
}

}  // namespace lockstep
