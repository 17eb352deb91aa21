#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/util/StringUtil.h>
#include <lockstep/amp/impl/hyperparameters.h>
#include <lockstep/amp/optimizer.h>
#include <lockstep/collectives/impl/option_list.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

namespace amp {

/// An option of an optimizer, as TORCH_ARG declares one: `name(value)` sets it, `name()` returns
/// it. The optimizer records which options were set, so that a group inherits the others.
#define LOCKSTEP_OPTIMIZER_ARG(T, name)                                        \
 public:                                                                       \
  auto name(const T& value)->decltype(*this) { /* NOLINT */                    \
    return this->set([value](auto& optimizer) { optimizer.name##_ = value; }); \
  }                                                                            \
  const T& name() const noexcept { /* NOLINT */                                \
    return this->name##_;                                                      \
  }                                                                            \
                                                                               \
 private:                                                                      \
  T name##_ /* NOLINT */

/// Adds parameter groups to an optimizer. `Spec` derives from Grouped<Spec>, declares its options
/// with LOCKSTEP_OPTIMIZER_ARG and must provide lr(), weight_decay() and kName, and for its other
/// options own_rule(), check_options() and describe_options(). For every optimizer of
/// optimizer_list.h `doctor` and the C interface also compile a constructor from one double, the
/// learning rate, and the option moments(MomentFormat).
///
/// As in torch.optim, a group has the options of the optimizer, also those that are set later,
/// except for its own.
template <typename Spec>
class Grouped : public FusedOptimizer {
 public:
  /// Parameters that `picks` selects use the options that were set in `options`: by its setters, or
  /// a learning rate given to its constructor. Options that were not set are those of this
  /// optimizer.
  ///   AdamW(3e-4).beta2(0.95).group(picks, AdamW().weight_decay(0))  // lr 3e-4, beta2 0.95
  Spec& group(Predicate picks, const Spec& options) {
    return group(std::move(picks), [given = std::make_shared<const Spec>(options)](Spec& own) {
      for (const Change& change : given->changes_) {
        change(own);
      }
      own.predicates_ = given->predicates_;
    });
  }
  /// The same, where `change` gets a copy of this optimizer and sets the options of the group. It
  /// may be called several times.
  ///   SGD(0.1).momentum(0.9).group(picks, [](SGD& own) { own.lr(0.1 * own.lr()); })
  Spec& group(Predicate picks, std::function<void(Spec&)> change) {
    predicates_.push_back(std::move(picks));
    group_changes_.push_back(std::move(change));
    return self();
  }
  /// Adds the usual group: no weight decay on norms and biases.
  Spec& no_decay_on_norms_and_biases() {
    return group(is_norm_or_bias, [](Spec& own) { own.weight_decay(0.0); });
  }

  std::shared_ptr<const UpdateRule> rule(int group) const override {
    return options_of(group).own_rule();
  }
  double learning_rate(int group) const override { return options_of(group).lr(); }
  std::string describe_group(int group) const override {
    const Spec own = options_of(group);
    return c10::str("lr ", detail::shortest(own.lr()), own.describe_options());
  }
  std::string describe() const override {
    std::string text = c10::str(Spec::kName, " ", describe_group(0), ", ", groups(),
                                groups() == 1 ? " group" : " groups");
    for (int group = 1; group < groups(); ++group) {
      text += c10::str("; group ", group, " ", describe_group(group));
    }
    return text;
  }
  void validate() const override {
    for (int group = 0; group < groups(); ++group) {
      check_that(
          group == 0 || predicates_[static_cast<size_t>(group) - 1] != nullptr,
          c10::str(Spec::kName, ": group ", group, " has no predicate that picks its parameters"));
      const Spec own = options_of(group);
      check_not_negative(Spec::kName, "lr", own.lr());
      check_not_negative(Spec::kName, "weight_decay", own.weight_decay());
      own.check_options();
    }
  }
  std::shared_ptr<OptimizerSpec> clone() const override { return std::make_shared<Spec>(self()); }

 protected:
  using Change = std::function<void(Spec&)>;

  Spec& set(Change change) {
    change(self());
    changes_.push_back(std::move(change));
    return self();
  }

 private:
  Spec& self() { return static_cast<Spec&>(*this); }
  const Spec& self() const { return static_cast<const Spec&>(*this); }
  Spec options_of(int group) const {
    check_that(group >= 0 && group < groups(),
               c10::str("optimizer: there is no group ", group, ", only 0 to ", groups() - 1));
    Spec own = self();
    if (group > 0) {
      const Change& change = group_changes_[static_cast<size_t>(group) - 1];
      check_that(change != nullptr, c10::str(Spec::kName, ": group ", group,
                                             " has no function that sets its options"));
      own.predicates_.clear();
      own.group_changes_.clear();
      change(own);
      check_that(own.groups() == 1,
                 c10::str(Spec::kName, ": the options of group ", group,
                          " have groups of their own; add them to the optimizer itself"));
    }
    return own;
  }

  std::vector<Change> changes_;        // what was set, in this order
  std::vector<Change> group_changes_;  // what each group sets
};

}  // namespace amp
}  // namespace lockstep
