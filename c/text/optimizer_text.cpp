#include <lockstep/amp/optimizers.h>
#include <lockstep/c/text/optimizer_text.h>

#include <algorithm>
#include <type_traits>

namespace lockstep::c {
namespace {

const char* const kNoDecay = "optimizer.no_decay_on_norms_and_biases";

/// The options that every optimizer has.
template <typename Spec>
OptionTable<Spec> common() {
  return {{"optimizer.lr", [](Spec& spec, const OptionValue& value) { spec.lr(value.real()); }},
          {"optimizer.weight_decay",
           [](Spec& spec, const OptionValue& value) { spec.weight_decay(value.real()); }},
          {"optimizer.moments",
           [](Spec& spec, const OptionValue& value) {
             spec.moments(value.one_of<MomentFormat>({{"fp32", MomentFormat::fp32},
                                                      {"bf16", MomentFormat::bf16},
                                                      {"int8", MomentFormat::int8}}));
           }},
          {kNoDecay, [](Spec& spec, const OptionValue& value) {
             if (value.boolean()) {
               spec.no_decay_on_norms_and_biases();
             }
           }}};
}

template <typename Spec>
OptionTable<Spec> table() {
  OptionTable<Spec> result = common<Spec>();
  if constexpr (std::is_same_v<Spec, SGD>) {
    result["optimizer.momentum"] = [](Spec& spec, const OptionValue& value) {
      spec.momentum(value.real());
    };
    result["optimizer.dampening"] = [](Spec& spec, const OptionValue& value) {
      spec.dampening(value.real());
    };
    result["optimizer.nesterov"] = [](Spec& spec, const OptionValue& value) {
      spec.nesterov(value.boolean());
    };
  } else {
    result["optimizer.beta1"] = [](Spec& spec, const OptionValue& value) {
      spec.beta1(value.real());
    };
    result["optimizer.beta2"] = [](Spec& spec, const OptionValue& value) {
      spec.beta2(value.real());
    };
  }
  if constexpr (!std::is_same_v<Spec, SGD> && !std::is_same_v<Spec, Lion>) {
    result["optimizer.eps"] = [](Spec& spec, const OptionValue& value) { spec.eps(value.real()); };
  }
  return result;
}

using Options = std::vector<OptionValue>;

template <typename Spec>
std::shared_ptr<const OptimizerSpec> make(Spec spec, const Options& options) {
  set_options(options, table<Spec>(), spec, Spec::kName);
  return std::make_shared<const Spec>(spec);
}

}  // namespace

std::shared_ptr<const OptimizerSpec> make_optimizer(const OptionValue& name,
                                                    const Options& options) {
  using Make = std::function<std::shared_ptr<const OptimizerSpec>(const Options&)>;
  // A group copies the other options when it is added.
  Options sorted = options;
  std::stable_partition(sorted.begin(), sorted.end(),
                        [](const OptionValue& option) { return option.key() != kNoDecay; });
  const bool has_rate = std::any_of(options.begin(), options.end(), [](const OptionValue& option) {
    return option.key() == "optimizer.lr";
  });
  return name.one_of<Make>({{"AdamW", [](const Options& all) { return make(AdamW(), all); }},
                            {"Adam", [](const Options& all) { return make(Adam(), all); }},
                            {"SGD",
                             [&](const Options& all) {
                               LOCKSTEP_CHECK(has_rate, "optimizer=SGD needs optimizer.lr");
                               return make(SGD(0.0), all);
                             }},
                            {"LAMB", [](const Options& all) { return make(LAMB(), all); }},
                            {"Lion", [](const Options& all) { return make(Lion(), all); }}})(
      sorted);
}

}  // namespace lockstep::c
