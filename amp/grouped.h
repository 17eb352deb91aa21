#pragma once

#include <lockstep/amp/hyperparameters.h>
#include <lockstep/amp/optimizer.h>

#include <memory>
#include <utility>
#include <vector>

namespace lockstep {

/// True for biases and for parameters of normalisation layers. These usually get no weight decay;
/// PyTorch users put them in a separate parameter group.
bool is_norm_or_bias(const ModelTensor& parameter);

namespace amp {

/// Adds parameter groups to the optimizer `Spec`. Spec derives from Grouped<Spec> and must provide
/// lr(), weight_decay() and kName, and for its other options own_rule(), check_options() and
/// describe_options().
template <typename Spec>
class Grouped : public OptimizerSpec {
 public:
  /// Parameters that `picks` selects use `options`, a copy, instead of the options of this
  /// optimizer.
  Spec& group(std::function<bool(const ModelTensor&)> picks, const Spec& options) {
    predicates_.push_back(std::move(picks));
    group_options_.push_back(std::make_shared<const Spec>(options));
    return self();
  }
  /// Adds the usual group: no weight decay on norms and biases. All other options are those of this
  /// optimizer, also where they are set after this call.
  Spec& no_decay_on_norms_and_biases() {
    predicates_.push_back(is_norm_or_bias);
    group_options_.push_back(nullptr);
    return self();
  }

  std::shared_ptr<const UpdateRule> rule(int group) const override {
    return options_of(group).own_rule();
  }
  double learning_rate(int group) const override { return options_of(group).lr(); }
  std::string describe() const override {
    return c10::str(Spec::kName, " lr ", self().lr(), self().describe_options(), ", ", groups(),
                    groups() == 1 ? " group" : " groups");
  }
  void validate() const override {
    check_not_negative(Spec::kName, "lr", self().lr());
    check_not_negative(Spec::kName, "weight_decay", self().weight_decay());
    self().check_options();
    for (size_t i = 0; i < group_options_.size(); ++i) {
      if (group_options_[i] == nullptr) {
        continue;
      }
      LOCKSTEP_CHECK(predicates_[i] != nullptr, Spec::kName, ": group ", i + 1,
                     " has no predicate that picks its parameters");
      LOCKSTEP_CHECK(group_options_[i]->groups() == 1, Spec::kName, ": the options of group ",
                     i + 1, " have groups of their own; add them to the optimizer itself");
      group_options_[i]->validate();
    }
  }
  std::shared_ptr<OptimizerSpec> clone() const override { return std::make_shared<Spec>(self()); }

 private:
  Spec& self() { return static_cast<Spec&>(*this); }
  const Spec& self() const { return static_cast<const Spec&>(*this); }
  Spec options_of(int group) const {
    LOCKSTEP_CHECK(group >= 0 && group < groups(), "optimizer: there is no group ", group,
                   ", only 0 to ", groups() - 1);
    if (group == 0) {
      return self();
    }
    if (const auto& options = group_options_[static_cast<size_t>(group) - 1]) {
      return *options;
    }
    Spec without_decay = self();
    without_decay.weight_decay(0.0);
    return without_decay;
  }

  // Null for no_decay_on_norms_and_biases(). Pointers, because Spec is incomplete here and clang in
  // C++20 needs an element's destructor now.
  std::vector<std::shared_ptr<const Spec>> group_options_;
};

}  // namespace amp
}  // namespace lockstep
