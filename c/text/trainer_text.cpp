#include <lockstep/c/text/optimizer_text.h>
#include <lockstep/c/text/option_text.h>
#include <lockstep/c/text/trainer_text.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

namespace lockstep::c {
namespace {

/// The parts of the arguments. A Precision is made at the end, when level and dtype are known.
struct Draft {
  TrainerOptions options;
  SnapshotOptions snapshots;
  KeepOptions keep;
  BucketOptions buckets;
  Precision::Level level = Precision::Level::O0;
  std::optional<c10::ScalarType> compute;
  std::vector<std::function<Precision(const Precision&)>> changes;
  std::optional<amp::LossScalerOptions> scaler;
  std::optional<LossKind> loss;

  amp::LossScalerOptions& loss_scale() {
    return scaler ? *scaler : scaler.emplace(amp::LossScalerOptions::torch());
  }
  void change(std::function<Precision(const Precision&)> function) {
    changes.push_back(std::move(function));
  }
};

using Table = OptionTable<Draft>;

/// An integer from 0 to infinity as a count, or a whole number in brackets.
int64_t whole(const OptionValue& value, double number) {
  if (!(std::abs(number) < 9e15) || number != std::floor(number)) {
    value.refuse("whole numbers of updates");
  }
  return static_cast<int64_t>(number);
}

Schedule schedule(const OptionValue& value) {
  const OptionCall call = read_call(value);
  const std::vector<double>& n = call.numbers;
  const auto expect = [&](size_t least, size_t most, const char* form) {
    if (n.size() < least || n.size() > most) {
      value.refuse(form);
    }
  };
  const auto at = [&](size_t i, double otherwise) { return i < n.size() ? n[i] : otherwise; };
  const auto updates = [&](size_t i) { return whole(value, n[i]); };
  using Make = std::function<Schedule()>;
  const std::map<std::string, Make> makers = {
      {"Constant",
       [&]() -> Schedule {
         expect(0, 0, "Constant");
         return Constant();
       }},
      {"WarmupLinear",
       [&]() -> Schedule {
         expect(2, 3, "WarmupLinear(warmup,total[,floor])");
         return WarmupLinear(updates(0), updates(1), at(2, 0.0));
       }},
      {"WarmupCosine",
       [&]() -> Schedule {
         expect(2, 3, "WarmupCosine(warmup,total[,floor])");
         return WarmupCosine(updates(0), updates(1), at(2, 0.0));
       }},
      {"WarmupStableDecay",
       [&]() -> Schedule {
         expect(3, 4, "WarmupStableDecay(warmup,decay,total[,floor])");
         return WarmupStableDecay(updates(0), updates(1), updates(2), at(3, 0.0));
       }},
      {"StepDecay",
       [&]() -> Schedule {
         expect(1, 2, "StepDecay(every[,gamma])");
         return StepDecay(updates(0), at(1, 0.1));
       }},
      {"OneCycle",
       [&]() -> Schedule {
         expect(1, 4, "OneCycle(total[,pct_start[,div_factor[,final_div_factor]]])");
         return OneCycle(updates(0), at(1, 0.3), at(2, 25.0), at(3, 1e4));
       }},
      {"MultiStepDecay", [&]() -> Schedule {
         expect(2, 17, "MultiStepDecay(milestone,...,gamma)");
         std::vector<int64_t> milestones;
         for (size_t i = 0; i + 1 < n.size(); ++i) {
           milestones.push_back(updates(i));
         }
         return MultiStepDecay(milestones, n.back());
       }}};
  return OptionValue(value.key(), call.name).one_of(makers)();
}

c10::ScalarType dtype(const OptionValue& value) {
  return value.one_of<c10::ScalarType>({{"fp32", c10::ScalarType::Float},
                                        {"fp16", c10::ScalarType::Half},
                                        {"bf16", c10::ScalarType::BFloat16}});
}

amp::LossScalerOptions scaler(const OptionValue& value) {
  using Options = amp::LossScalerOptions;
  double number = 0.0;
  try {
    number = value.real();
  } catch (const Error&) {
    return value.one_of<Options>({{"torch", Options::torch()},
                                  {"apex", Options::apex()},
                                  {"deepspeed", Options::deepspeed()},
                                  {"megatron", Options::megatron()},
                                  {"disabled", Options::disabled()}});
  }
  return Options::fixed(number);
}

/// Setters of one field: set(&TrainerOptions::accumulate) takes a value of the field's type.
template <typename Value>
Value read(const OptionValue& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    return value.boolean();
  } else if constexpr (std::is_same_v<Value, int64_t>) {
    return value.integer();
  } else if constexpr (std::is_same_v<Value, double>) {
    return value.real();
  } else {
    return value.text();
  }
}

template <typename Value, typename Part, typename Owner>
std::function<void(Draft&, const OptionValue&)> set(Part Draft::*part,
                                                    Owner& (Owner::*setter)(const Value&)) {
  return [part, setter](Draft& draft, const OptionValue& value) {
    ((draft.*part).*setter)(read<Value>(value));
  };
}

template <typename Value>
std::function<void(Draft&, const OptionValue&)> set_scale(
    amp::LossScalerOptions& (amp::LossScalerOptions::*setter)(const Value&)) {
  return [setter](Draft& draft, const OptionValue& value) {
    (draft.loss_scale().*setter)(read<Value>(value));
  };
}

std::function<void(Draft&, const OptionValue&)> set_precision(Precision (Precision::*setter)(bool)
                                                                  const) {
  return [setter](Draft& draft, const OptionValue& value) {
    draft.change([setter, on = value.boolean()](const Precision& precision) {
      return (precision.*setter)(on);
    });
  };
}

Table training_table() {
  using Options = TrainerOptions;
  return {
      {"loss",
       [](Draft& draft, const OptionValue& value) {
         draft.loss = value.one_of<LossKind>({{"mse", LossKind::mse},
                                              {"l1", LossKind::l1},
                                              {"cross_entropy", LossKind::cross_entropy},
                                              {"output", LossKind::output}});
       }},
      {"accumulate", set<int64_t>(&Draft::options, &Options::accumulate)},
      {"clip_grad_norm", set<double>(&Draft::options, &Options::clip_grad_norm)},
      {"clip_grad_value", set<double>(&Draft::options, &Options::clip_grad_value)},
      {"ema", set<double>(&Draft::options, &Options::ema)},
      {"shard_optimizer", set<bool>(&Draft::options, &Options::shard_optimizer)},
      {"schedule",
       [](Draft& draft, const OptionValue& value) { draft.options.schedule(schedule(value)); }},
      {"unused",
       [](Draft& draft, const OptionValue& value) {
         draft.options.unused(
             value.one_of<UnusedParameters>({{"error", UnusedParameters::error},
                                             {"zeros", UnusedParameters::zeros},
                                             {"detect", UnusedParameters::detect}}));
       }},
      {"buffers",
       [](Draft& draft, const OptionValue& value) {
         draft.options.buffers(value.one_of<BufferPolicy>({{"none", BufferPolicy::none},
                                                           {"broadcast", BufferPolicy::broadcast},
                                                           {"average", BufferPolicy::average}}));
       }},
      {"first_bucket_bytes", set<int64_t>(&Draft::buckets, &BucketOptions::first_bucket_bytes)},
      {"bucket_bytes", set<int64_t>(&Draft::buckets, &BucketOptions::bucket_bytes)},
      {"densify_sparse", set<bool>(&Draft::options, &Options::densify_sparse)},
      {"uneven_data", set<bool>(&Draft::options, &Options::uneven_data)},
      {"compare_replicas_every", set<int64_t>(&Draft::options, &Options::compare_replicas_every)},
      {"diagnose_after_skips", set<int64_t>(&Draft::options, &Options::diagnose_after_skips)},
      {"diagnosis_folder", set<std::string>(&Draft::options, &Options::diagnosis_folder)},
      {"snapshots.folder", set<std::string>(&Draft::snapshots, &SnapshotOptions::folder)},
      {"snapshots.asynchronous", set<bool>(&Draft::snapshots, &SnapshotOptions::asynchronous)},
      {"snapshots.keep.last", set<int64_t>(&Draft::keep, &KeepOptions::last)},
      {"snapshots.keep.every", set<int64_t>(&Draft::keep, &KeepOptions::every)},
  };
}

Table precision_table() {
  using Level = Precision::Level;
  using Scale = amp::LossScalerOptions;
  return {
      {"precision",
       [](Draft& draft, const OptionValue& value) {
         draft.level = value.one_of<Level>(
             {{"O0", Level::O0}, {"O1", Level::O1}, {"O2", Level::O2}, {"O3", Level::O3}});
       }},
      {"precision.compute",
       [](Draft& draft, const OptionValue& value) {
         if (draft.level == Level::O0) {
           value.refuse("precision=O1, O2 or O3 with it: O0 computes in the dtype of the model");
         }
         draft.compute = dtype(value);
       }},
      {"precision.wire",
       [](Draft& draft, const OptionValue& value) {
         draft.change([wire = dtype(value)](const Precision& from) { return from.wire(wire); });
       }},
      {"precision.keep_fp32",
       [](Draft& draft, const OptionValue& value) {
         for (const std::string& pattern : value.list()) {
           draft.change([pattern](const Precision& from) { return from.keep_fp32(pattern); });
         }
       }},
      {"precision.norms",
       [](Draft& draft, const OptionValue& value) {
         for (const std::string& name : value.list()) {
           draft.change([name](const Precision& from) { return from.norms(name); });
         }
       }},
      {"precision.predivide",
       [](Draft& draft, const OptionValue& value) {
         draft.change([by = value.real()](const Precision& from) { return from.predivide(by); });
       }},
      {"precision.keep_batchnorm_fp32", set_precision(&Precision::keep_batchnorm_fp32)},
      {"precision.remainders", set_precision(&Precision::remainders)},
      {"precision.stochastic_rounding", set_precision(&Precision::stochastic_rounding)},
      {"precision.error_feedback", set_precision(&Precision::error_feedback)},
      {"loss_scale", [](Draft& draft, const OptionValue& value) { draft.scaler = scaler(value); }},
      {"loss_scale.init_scale", set_scale<double>(&Scale::init_scale)},
      {"loss_scale.growth_factor", set_scale<double>(&Scale::growth_factor)},
      {"loss_scale.backoff_factor", set_scale<double>(&Scale::backoff_factor)},
      {"loss_scale.growth_interval", set_scale<int64_t>(&Scale::growth_interval)},
      {"loss_scale.hysteresis", set_scale<int64_t>(&Scale::hysteresis)},
      {"loss_scale.min_scale", set_scale<double>(&Scale::min_scale)},
      {"loss_scale.max_scale", set_scale<double>(&Scale::max_scale)},
      {"loss_scale.max_consecutive_skips",
       [](Draft& draft, const OptionValue& value) {
         draft.loss_scale().max_consecutive_skips(value.integer());
       }},
  };
}

const Table& table() {
  static const Table result = [] {
    Table all = training_table();
    all.merge(precision_table());
    all["optimizer"] = [](Draft& /*draft*/, const OptionValue& /*value*/) {};
    return all;
  }();
  return result;
}

Precision precision_of(const Draft& draft) {
  const c10::ScalarType compute = draft.compute.value_or(c10::ScalarType::Half);
  Precision precision = draft.level == Precision::Level::O0   ? Precision::O0()
                        : draft.level == Precision::Level::O1 ? Precision::O1(compute)
                        : draft.level == Precision::Level::O2 ? Precision::O2(compute)
                                                              : Precision::O3(compute);
  for (const auto& change : draft.changes) {
    precision = change(precision);
  }
  return draft.scaler ? precision.loss_scale(*draft.scaler) : precision;
}

}  // namespace

TrainerText trainer_text(const std::string& text) {
  std::vector<OptionValue> options = read_options(text);
  // A key such as "precision" comes before "precision.wire".
  std::stable_sort(options.begin(), options.end(), [](const auto& a, const auto& b) {
    return a.key().find('.') == std::string::npos && b.key().find('.') != std::string::npos;
  });
  OptionValue optimizer("optimizer", "AdamW");
  std::vector<OptionValue> of_optimizer, others;
  for (const OptionValue& option : options) {
    if (option.key() == "optimizer") {
      optimizer = option;
    }
    (option.key().rfind("optimizer.", 0) == 0 ? of_optimizer : others).push_back(option);
  }
  Draft draft;
  set_options(others, table(), draft, "a trainer");
  LOCKSTEP_CHECK(draft.loss, "a trainer needs the option loss: mse, l1, cross_entropy or output");
  draft.options.precision(precision_of(draft));
  draft.options.buckets(draft.buckets);
  draft.options.snapshots(draft.snapshots.keep(draft.keep));
  return {draft.options, make_optimizer(optimizer, of_optimizer), *draft.loss};
}

}  // namespace lockstep::c
