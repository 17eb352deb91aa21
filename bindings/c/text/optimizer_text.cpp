#include <lockstep/amp/impl/optimizer_list.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/bindings/c/text/optimizer_text.h>
#include <lockstep/collectives/check.h>

#include <algorithm>
#include <functional>
#include <map>
#include <type_traits>

namespace lockstep::c {
namespace {

const char* const kNoDecay = "optimizer.no_decay_on_norms_and_biases";

/// The setter of each option of a Spec, by its name.
template <typename Spec>
using OptionTable = std::map<std::string, std::function<void(Spec&, const OptionValue&)>>;

/// Adds the option if the optimizer has it, that is, if `set` can be called.
template <typename Spec, typename Set>
void add(OptionTable<Spec>& options, const char* key, const Set& set) {
  if constexpr (std::is_invocable_v<Set, Spec&, const OptionValue&>) {
    options[key] = set;
  }
}

/// A callable that calls the setter of this name; not callable for an optimizer without the setter.
#define LOCKSTEP_SET(option, reader)                                                  \
  [](auto& spec, const OptionValue& value) -> decltype(spec.option(value.reader())) { \
    return spec.option(value.reader());                                               \
  }

template <typename Spec>
OptionTable<Spec> options_of() {
  OptionTable<Spec> options;
  add(options, "optimizer.lr", LOCKSTEP_SET(lr, real));
  add(options, "optimizer.weight_decay", LOCKSTEP_SET(weight_decay, real));
  add(options, "optimizer.beta1", LOCKSTEP_SET(beta1, real));
  add(options, "optimizer.beta2", LOCKSTEP_SET(beta2, real));
  add(options, "optimizer.eps", LOCKSTEP_SET(eps, real));
  add(options, "optimizer.momentum", LOCKSTEP_SET(momentum, real));
  add(options, "optimizer.dampening", LOCKSTEP_SET(dampening, real));
  add(options, "optimizer.nesterov", LOCKSTEP_SET(nesterov, boolean));
  options["optimizer.moments"] = [](Spec& spec, const OptionValue& value) {
    spec.moments(
        value.one_of<MomentFormat>({{"fp32", MomentFormat::fp32}, {"bf16", MomentFormat::bf16}}));
  };
  options[kNoDecay] = [](Spec& spec, const OptionValue& value) {
    if (value.boolean()) {
      spec.no_decay_on_norms_and_biases();
    }
  };
  return options;
}

#undef LOCKSTEP_SET

using Options = std::vector<OptionValue>;

/// Constructs the optimizer; one without a default learning rate needs the option lr.
template <typename Spec>
Spec defaults(const Options& options) {
  if constexpr (std::is_default_constructible_v<Spec>) {
    return Spec();
  } else {
    const bool has_rate =
        std::any_of(options.begin(), options.end(),
                    [](const OptionValue& option) { return option.key() == "optimizer.lr"; });
    LOCKSTEP_CHECK(has_rate, "optimizer=", Spec::kName, " needs optimizer.lr");
    return Spec(0.0);
  }
}

template <typename Spec>
std::shared_ptr<const OptimizerSpec> make(const Options& options) {
  Spec spec = defaults<Spec>(options);
  const OptionTable<Spec> table = options_of<Spec>();
  for (const OptionValue& option : options) {
    const auto setter = table.find(option.key());
    if (setter == table.end()) {
      std::vector<std::string> known;
      for (const auto& [key, function] : table) {
        known.push_back(key);
      }
      refuse_key(option.key(), Spec::kName, known);
    }
    setter->second(spec, option);
  }
  return std::make_shared<const Spec>(spec);
}

}  // namespace

std::shared_ptr<const OptimizerSpec> make_optimizer(const OptionValue& name,
                                                    const Options& options) {
  using Make = std::shared_ptr<const OptimizerSpec> (*)(const Options&);
  std::map<std::string, Make> names;
#define LOCKSTEP_NAME(Spec) names[Spec::kName] = make<Spec>;
  LOCKSTEP_FOR_EACH_OPTIMIZER(LOCKSTEP_NAME)
#undef LOCKSTEP_NAME
  return name.one_of(names)(options);
}

}  // namespace lockstep::c
