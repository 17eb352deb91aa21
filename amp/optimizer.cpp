#include <lockstep/amp/impl/update_rule.h>
#include <lockstep/amp/model.h>
#include <lockstep/amp/optimizer.h>

namespace lockstep {

namespace {

struct FusedOnly final : amp::OptimizerVisitor {
  const FusedOptimizer* found = nullptr;
  void visit(const FusedOptimizer& optimizer) override { found = &optimizer; }
  void visit(const TorchOptimizer&) override {}
};

}  // namespace

int OptimizerSpec::group_of(const ModelTensor& parameter) const {
  for (size_t i = predicates_.size(); i > 0; --i) {
    if (predicates_[i - 1](parameter)) {
      return static_cast<int>(i);
    }
  }
  return 0;
}

const FusedOptimizer* OptimizerSpec::fused() const {
  FusedOnly visitor;
  accept(visitor);
  return visitor.found;
}

bool FusedOptimizer::needs_whole(const ModelTensor& parameter) const {
  return rule(group_of(parameter))->whole_parameters();
}

}  // namespace lockstep
