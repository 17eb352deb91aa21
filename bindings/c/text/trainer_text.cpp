#include <lockstep/bindings/c/text/optimizer_text.h>
#include <lockstep/bindings/c/text/option_text.h>
#include <lockstep/bindings/c/text/own_loop_text.h>
#include <lockstep/bindings/c/text/trainer_text.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/step/impl/option_fields.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <type_traits>

namespace lockstep::c {
namespace {

/// For each schedule: how many numbers it has in brackets, and its constructor.
struct ScheduleForm {
  size_t least;
  size_t most;
  const char* text;
  std::function<Schedule()> make;
};

Schedule schedule(const OptionValue& value) {
  const OptionCall call = read_call(value);
  const std::vector<double>& n = call.numbers;
  const auto at = [&](size_t i, double otherwise) { return i < n.size() ? n[i] : otherwise; };
  const auto updates = [&](size_t i) {
    if (!(std::abs(n[i]) < 9e15) || n[i] != std::floor(n[i])) {
      value.refuse("whole numbers of updates");
    }
    return static_cast<int64_t>(n[i]);
  };
  const std::map<std::string, ScheduleForm> forms = {
      {"Constant", {0, 0, "Constant", [&] { return Constant(); }}},
      {"WarmupLinear",
       {2, 3, "WarmupLinear(warmup,total[,floor])",
        [&] { return WarmupLinear(updates(0), updates(1), at(2, 0.0)); }}},
      {"WarmupCosine",
       {2, 3, "WarmupCosine(warmup,total[,floor])",
        [&] { return WarmupCosine(updates(0), updates(1), at(2, 0.0)); }}},
      {"WarmupStableDecay",
       {3, 4, "WarmupStableDecay(warmup,decay,total[,floor])",
        [&] { return WarmupStableDecay(updates(0), updates(1), updates(2), at(3, 0.0)); }}},
      {"StepDecay",
       {1, 2, "StepDecay(every[,gamma])", [&] { return StepDecay(updates(0), at(1, 0.1)); }}},
      {"OneCycle",
       {1, 4, "OneCycle(total[,pct_start[,div_factor[,final_div_factor]]])",
        [&] { return OneCycle(updates(0), at(1, 0.3), at(2, 25.0), at(3, 1e4)); }}},
      {"MultiStepDecay", {2, 17, "MultiStepDecay(milestone,...,gamma)", [&] {
                            std::vector<int64_t> milestones;
                            for (size_t i = 0; i + 1 < n.size(); ++i) {
                              milestones.push_back(updates(i));
                            }
                            return MultiStepDecay(milestones, n.back());
                          }}}};
  const ScheduleForm& form = OptionValue(value.key(), call.name).one_of(forms);
  if (n.size() < form.least || n.size() > form.most) {
    value.refuse(form.text);
  }
  return form.make();
}

/// The key of an option: its name; without prefix for `precision.loss_scale` and `buckets`; empty
/// if this interface does not support the option.
std::string key_of(const std::string& name) {
  for (const char* other : {"activation_chain", "cuda_graph", "losses", "local_updates",
                            "reduce_on_plateau", "precision.level"}) {
    if (name.rfind(other, 0) == 0) {
      return "";
    }
  }
  const bool is_inner =
      name.rfind("precision.loss_scale", 0) == 0 || name.rfind("buckets.", 0) == 0;
  return is_inner ? name.substr(name.find('.') + 1) : name;
}

}  // namespace

static void read(c10::ScalarType& option, const OptionValue& value) {
  option = floating_dtype(value);
}
static void read(Schedule& option, const OptionValue& value) {
  option = schedule(value);
}

TrainerText trainer_text(const std::string& text) {
  OptionValue optimizer("optimizer", "AdamW"), level("precision", "O0");
  std::optional<OptionValue> scale;
  std::optional<LossKind> loss;
  std::vector<OptionValue> of_optimizer, others;
  for (const OptionValue& option : read_options(text)) {
    const std::string& key = option.key();
    if (key == "optimizer") {
      optimizer = option;
    } else if (key == "precision") {
      level = option;
    } else if (key == "loss_scale") {
      scale = option;
    } else if (key == "loss") {
      loss = option.one_of<LossKind>({{"mse", LossKind::mse},
                                      {"l1", LossKind::l1},
                                      {"cross_entropy", LossKind::cross_entropy},
                                      {"output", LossKind::output}});
    } else {
      (key.rfind("optimizer.", 0) == 0 ? of_optimizer : others).push_back(option);
    }
  }
  TrainerOptions options;
  options.precision(level.one_of<Precision>({{"O0", Precision::O0()},
                                             {"O1", Precision::O1()},
                                             {"O2", Precision::O2()},
                                             {"O3", Precision::O3()}}));
  bool scales = false;
  for (const OptionValue& option : others) {
    if (option.key() == "precision.compute" && !options.precision().autocast()) {
      option.refuse("precision=O1, O2 or O3 with it: O0 computes in the dtype of the model");
    }
    scales = scales || option.key().rfind("loss_scale.", 0) == 0;
  }
  if (scale || scales) {
    options.precision(options.precision().loss_scale(scale ? scaler_policy(*scale)
                                                           : amp::LossScalerOptions::torch()));
  }
  set_options(others, options, "a trainer", key_of,
              {"loss", "loss_scale", "optimizer", "precision"});
  LOCKSTEP_CHECK(loss, "a trainer needs the option loss: mse, l1, cross_entropy or output");
  return {options, make_optimizer(optimizer, of_optimizer), *loss};
}

}  // namespace lockstep::c
