#include "doctor/kernel_checks.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <hwy/targets.h>
#include <lockstep/amp/impl/cuda_kernels.h>
#include <lockstep/amp/impl/decision.h>
#include <lockstep/amp/impl/flat_kernels.h>
#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/amp/impl/optimizer_list.h>
#include <lockstep/amp/optimizers.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

namespace lockstep::doctor {
namespace {

using Tensors = std::vector<at::Tensor>;

/// While the object lives, kernels on the host run the generic code.
class NoInstructionSet {
 public:
  NoInstructionSet() { hwy::GetChosenTarget().Update(0); }
  ~NoInstructionSet() { hwy::GetChosenTarget().Update(hwy::SupportedTargets()); }
  NoInstructionSet(const NoInstructionSet&) = delete;
  NoInstructionSet& operator=(const NoInstructionSet&) = delete;
};

/// The same values at each call, on the host.
at::Tensor values(int64_t size, uint64_t seed) {
  return at::randn({size}, at::detail::createCPUGenerator(seed));
}

at::Tensor bytes_of(const void* data, size_t size, c10::Device device) {
  const at::Tensor bytes = at::empty({static_cast<int64_t>(size)}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), data, size);
  return bytes.to(device);
}

template <typename Value>
at::Tensor bytes_of(const Value& value, c10::Device device) {
  return bytes_of(&value, sizeof value, device);
}

template <typename Value>
Value value_of(const at::Tensor& bytes) {
  Value value;
  const at::Tensor host = bytes.cpu();
  std::memcpy(&value, host.const_data_ptr(), sizeof value);
  return value;
}

/// Waits until the device has computed `result`.
void wait_for(const at::Tensor& result) {
  if (!result.is_cpu()) {
    result.narrow(0, 0, 1).cpu();
  }
}

amp::StepState state_of(int64_t update) {
  amp::StepState state;
  state.gradient_factor = 0.37F;
  state.update = update;
  return state;
}

/// A span after one update on the host: the moments are not zero, and their bits are the same.
amp::FlatSpan span_on(const amp::UpdateRule& rule, int64_t size, c10::Device device) {
  amp::FlatSpan span;
  span.gradient = values(size, 1).to(at::kHalf);
  span.master = values(size, 2);
  span.weight = span.master.to(at::kHalf);
  span.average = values(size, 10);
  span.average_rest = 0.1;
  amp::add_moments(span, rule);
  const amp::StepState first = state_of(1);
  rule.apply(span, &first);
  for (at::Tensor* array : {&span.gradient, &span.master, &span.weight, &span.average}) {
    *array = array->to(device);
  }
  for (at::Tensor& moment : span.moments) {
    moment = moment.to(device);
  }
  return span;
}

template <typename Optimizer>
void add_update(std::vector<Kernel>& kernels, const Optimizer& optimizer, const std::string& name,
                int64_t size) {
  for (const MomentFormat format : {MomentFormat::fp32, MomentFormat::bf16}) {
    const std::shared_ptr<const amp::UpdateRule> rule =
        Optimizer(optimizer).moments(format).rule(0);
    if (rule->moments() == 0 && format != MomentFormat::fp32) {
      continue;
    }
    kernels.push_back({name + amp::describe_moments(format), 1e-6, [=](c10::Device device) {
                         const amp::FlatSpan span = span_on(*rule, size, device);
                         const amp::StepState state = state_of(2);
                         const at::Tensor there = bytes_of(state, device);
                         rule->apply(span,
                                     static_cast<const amp::StepState*>(there.const_data_ptr()));
                         wait_for(span.master);
                         Tensors outputs{span.master, span.weight, span.average};
                         if (format == MomentFormat::fp32) {
                           outputs.insert(outputs.end(), span.moments.begin(), span.moments.end());
                         }
                         return outputs;
                       }});
  }
}

constexpr float kScale = 1024.0F;
constexpr amp::ScalerRule kScalerRule{2.0, 0.5, 1.0F, 65536.0F, 3, 1, true, false, false};

/// Before an update in which the scale grows, or backs off.
amp::ScalerState scaler_state() {
  amp::ScalerState state;
  state.scale = kScale;
  state.growth_tracker = 2;
  state.iteration = 7;
  return state;
}

std::vector<double> numbers_of(const amp::ScalerState& state) {
  return {state.scale,
          static_cast<double>(state.growth_tracker),
          static_cast<double>(state.hysteresis_tracker),
          static_cast<double>(state.consecutive_skips),
          static_cast<double>(state.iteration),
          static_cast<double>(state.last_overflow),
          static_cast<double>(state.skipped)};
}

/// The norm is below or above the limit of 1, a bucket or a loss is not finite, a rank has failed.
std::vector<amp::Decision> open_decisions() {
  std::vector<amp::Decision> decisions(6);
  for (amp::Decision& decision : decisions) {
    decision.totals.sum_squares = std::pow(0.25 * kScale, 2);
    decision.updates = 4;
    decision.planned = {4, {0.75F, 0.5F}};
  }
  decisions[1].totals.sum_squares = std::pow(4.0 * kScale, 2);
  decisions[2].totals.not_finite = 1.0;
  decisions[3].failed = 1.0;
  decisions[4].loss_overflow = 1.0;
  decisions[5].updates = 5;
  return decisions;
}

std::vector<amp::DecisionRule> decision_rules() {
  amp::ScheduleFormula cosine;
  cosine.kind = amp::ScheduleFormula::Kind::warmup_cosine;
  cosine.warmup = 2;
  cosine.total = 20;
  cosine.decay = 18;
  amp::ScheduleFormula function;
  function.kind = amp::ScheduleFormula::Kind::function;
  return {{kScalerRule, 1.0, 0.5F, cosine}, {kScalerRule, INFINITY, 3e38F, function}};
}

/// What a kernel makes of each decision, in numbers near 1.
template <typename Act, typename Numbers>
Tensors decided(c10::Device device, const Act& act, const Numbers& numbers) {
  std::vector<double> all;
  for (const amp::DecisionRule& rule : decision_rules()) {
    for (const amp::Decision& open : open_decisions()) {
      const at::Tensor decision = bytes_of(open, device);
      const at::Tensor scaler = bytes_of(scaler_state(), device);
      act(static_cast<amp::Decision*>(decision.mutable_data_ptr()),
          static_cast<amp::ScalerState*>(scaler.mutable_data_ptr()), rule);
      for (const double number : numbers(value_of<amp::Decision>(decision))) {
        all.push_back(number);
      }
    }
  }
  return {at::tensor(all, at::kDouble)};
}

Tensors decisions_on(c10::Device device) {
  return decided(
      device,
      [&](auto* decision, auto* scaler, const auto& rule) {
        amp::decide_in_place(decision, scaler, rule, device);
      },
      [](const amp::Decision& made) -> std::vector<double> {
        return {made.skipped ? 1.0 : 0.0,
                made.scale,
                made.grad_norm,
                made.step.gradient_factor * static_cast<double>(kScale),
                made.step.gradient_limit,
                made.step.learning_rate_factor,
                static_cast<double>(made.step.update),
                made.step.skip ? 1.0 : 0.0};
      });
}

Tensors conclusions_on(c10::Device device) {
  return decided(
      device,
      [&](auto* decision, auto* scaler, const auto& rule) {
        amp::decide_in_place(decision, scaler, rule, device);
        amp::conclude_in_place(decision, scaler, rule, device);
      },
      [](const amp::Decision& made) {
        std::vector<double> numbers = numbers_of(made.scaler);
        numbers.push_back(static_cast<double>(made.updates));
        return numbers;
      });
}

Tensors scales_on(c10::Device device) {
  std::vector<double> all;
  for (const float overflow : {0.0F, 1.0F}) {
    const at::Tensor bytes = bytes_of(scaler_state(), device);
    auto* state = static_cast<amp::ScalerState*>(bytes.mutable_data_ptr());
    const at::Tensor flag = at::full({1}, overflow).to(device);
    if (device.is_cpu()) {
      amp::advance(*state, kScalerRule, overflow != 0.0F);
    } else {
      amp::advance_on_cuda(state, kScalerRule, flag.const_data_ptr<float>(), device);
    }
    for (const double number : numbers_of(value_of<amp::ScalerState>(bytes))) {
      all.push_back(number);
    }
  }
  return {at::tensor(all, at::kDouble)};
}

Tensors averages_on(c10::Device device, int64_t size) {
  Tensors averages;
  for (const bool skip : {false, true}) {
    amp::FlatSpan span;
    span.master = values(size, 7).to(device);
    span.gradient = span.master;
    span.average = values(size, 8).to(device);
    span.average_rest = 0.1;
    amp::StepState state;
    state.skip = skip;
    const at::Tensor there = bytes_of(state, device);
    amp::move_average(span, static_cast<const amp::StepState*>(there.const_data_ptr()));
    averages.push_back(span.average);
  }
  return averages;
}

at::Tensor no_totals(c10::Device device) {
  return at::zeros({2}, at::TensorOptions().dtype(at::kDouble).device(device));
}

/// Each part alone, as ranks share it, and a bucket with an element that is not finite.
Tensors measures_in_parts(c10::Device device, int64_t size) {
  const at::Tensor totals = no_totals(device);
  const at::Tensor flat = values(size, 9).to(at::kHalf).to(device);
  const amp::MeasuredParts parts{(size / 3 + 7) / 8 * 8, 3};
  const at::Tensor sums = at::zeros({amp::measured_sums(parts, device)}, totals.options());
  for (int part = 0; part < parts.count; ++part) {
    amp::measure_part(amp::part_of(flat, parts, part), parts, part, sums);
  }
  amp::add_measured(sums, totals);
  const at::Tensor broken = no_totals(device);
  flat.narrow(0, size - 1, 1).fill_(INFINITY);
  amp::measure_into(flat, broken);
  return {totals, broken.narrow(0, 1, 1)};
}

const std::vector<at::ScalarType>& wire_dtypes() {
  static const std::vector<at::ScalarType> dtypes{at::kFloat, at::kHalf, at::kBFloat16};
  return dtypes;
}

bool same(const at::Tensor& ours, const at::Tensor& twins, double tolerance) {
  const at::Tensor a = ours.cpu();
  const at::Tensor b = twins.cpu();
  if (tolerance == 0.0) {
    return a.nbytes() == b.nbytes() &&
           std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
  }
  const double own =
      a.scalar_type() == at::kFloat || a.scalar_type() == at::kDouble ? tolerance : 1e-2;
  return at::allclose(a.to(at::kFloat), b.to(at::kFloat), own, tolerance, /*equal_nan=*/true);
}

bool same(const Tensors& ours, const Tensors& twins, double tolerance) {
  for (size_t k = 0; k < ours.size(); ++k) {
    if (!same(ours[k], twins[k], tolerance)) {
      return false;
    }
  }
  return ours.size() == twins.size();
}

/// GB/s of the fastest of a few calls.
template <typename Call>
double fastest(double bytes, const Call& call) {
  double best = 0.0;
  for (int run = 0; run < 4; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    best = std::max(best, bytes * 1e-9 / time.count());
  }
  return best;
}

}  // namespace

std::vector<Kernel> update_kernels(int64_t size) {
  std::vector<Kernel> kernels;
#define LOCKSTEP_ADD(Optimizer) \
  add_update(kernels, Optimizer(1e-2).weight_decay(0.1), #Optimizer, size);
  LOCKSTEP_FOR_EACH_OPTIMIZER(LOCKSTEP_ADD)
#undef LOCKSTEP_ADD
  add_update(kernels, SGD(1e-2).momentum(0.9).nesterov(true), "SGD with momentum", size);
  return kernels;
}

std::vector<Kernel> cast_kernels(int64_t size) {
  std::vector<Kernel> kernels;
  for (const at::ScalarType from : wire_dtypes()) {
    for (const at::ScalarType to : wire_dtypes()) {
      kernels.push_back({c10::str("cast ", from, " to ", to), 0.0, [=](c10::Device device) {
                           const at::Tensor source = values(size, 3).to(from).to(device);
                           const at::Tensor target = at::empty({size}, source.options().dtype(to));
                           amp::cast_flat(target, source, 0.125);
                           return Tensors{target};
                         }});
    }
    const at::ScalarType to = from == at::kFloat ? at::kHalf : at::kFloat;  // packs, or unpacks
    kernels.push_back(
        {c10::str("casts of ", from), 0.0, [=](c10::Device device) {
           const at::Tensor source = values(size, 3).to(from).to(device);
           const int64_t first = size / 3;  // arrays of different sizes
           const at::Tensor target = at::empty({size}, source.options().dtype(to));
           amp::cast_all_flat(
               {target.narrow(0, 0, first / 8 * 8), target.narrow(0, first / 8 * 8, 8)},
               {source.narrow(0, 0, first / 8 * 8), source.narrow(0, first / 8 * 8, 8)}, 0.125);
           return Tensors{target.narrow(0, 0, first / 8 * 8 + 8)};
         }});
    kernels.push_back({c10::str("accumulate ", from), 0.0, [=](c10::Device device) {
                         const at::Tensor sum = values(size, 4).to(device);
                         amp::accumulate_flat(sum, values(size, 5).to(from).to(device));
                         return Tensors{sum};
                       }});
  }
  return kernels;
}

std::vector<Kernel> step_kernels(int64_t size) {
  std::vector<Kernel> kernels;
  for (const at::ScalarType from : wire_dtypes()) {
    kernels.push_back({c10::str("measure ", from), 1e-6, [=](c10::Device device) {
                         const at::Tensor totals = no_totals(device);
                         amp::measure_into(values(size, 6).to(from).to(device), totals);
                         return Tensors{totals};
                       }});
  }
  const auto in_parts = [=](c10::Device device) { return measures_in_parts(device, size); };
  const auto averages = [=](c10::Device device) { return averages_on(device, size); };
  kernels.push_back({"measure in parts", 1e-6, in_parts});
  kernels.push_back({"decide", 1e-6, decisions_on});
  kernels.push_back({"conclude", 1e-6, conclusions_on});
  kernels.push_back({"loss scale", 1e-6, scales_on});
  kernels.push_back({"average", 1e-6, averages});
  return kernels;
}

Finding check_kernels(const std::vector<Kernel>& kernels, c10::Device device) {
  std::string wrong;
  for (const Kernel& kernel : kernels) {
    const Tensors ours = kernel.run(device);
    Tensors twins;
    if (device.is_cpu()) {
      const NoInstructionSet portable;
      twins = kernel.run(device);
    } else {
      twins = kernel.run(c10::kCPU);
    }
    if (!same(ours, twins, device.is_cpu() ? 0.0 : kernel.tolerance)) {
      wrong += (wrong.empty() ? "" : ", ") + kernel.name;
    }
  }
  if (!wrong.empty()) {
    return {Status::failure, "wrong results of: " + wrong,
            device.is_cpu()
                ? "do not train on this machine: its vector unit or its memory is faulty, "
                  "or the build is damaged; build again"
                : "do not train on this device: look for errors with nvidia-smi -q -d ECC, "
                  "then build again for its architecture (LOCKSTEP_CUDA_ARCHITECTURES)"};
  }
  return {Status::ok,
          c10::str(kernels.size(), " kernels: ",
                   device.is_cpu() ? "vector code has the bits of plain code"
                                   : "the device has the values of the host"),
          ""};
}

Speeds measure_speeds(c10::Device device, int64_t elements) {
  Speeds speeds;
  const at::Tensor from =
      at::ones({elements}, at::TensorOptions().dtype(at::kFloat).device(device));
  const at::Tensor to = at::empty_like(from);
  const double bytes = 4.0 * static_cast<double>(elements);
  speeds.copy = fastest(2 * bytes, [&] {
    to.copy_(from);
    wait_for(to);
  });
  if (!device.is_cpu()) {
    const at::Tensor locked = at::empty({elements}, at::kFloat).pin_memory();
    speeds.upload = fastest(bytes, [&] {
      to.copy_(locked, /*non_blocking=*/true);
      wait_for(to);
    });
  }
  const std::shared_ptr<const amp::UpdateRule> rule = AdamW().rule(0);
  amp::FlatSpan span;
  span.gradient = from;
  span.master = to.zero_();
  span.moments = {at::zeros_like(from), at::zeros_like(from)};
  const amp::StepState state;
  const at::Tensor there = bytes_of(state, device);
  speeds.update = fastest(7 * bytes, [&] {
    rule->apply(span, static_cast<const amp::StepState*>(there.const_data_ptr()));
    wait_for(span.master);
  });
  return speeds;
}

Finding judge_speeds(const Speeds& speeds) {
  const auto rounded = [](double value) { return std::round(value * 10.0) * 0.1; };
  const std::string what =
      c10::str("copy ", rounded(speeds.copy), " GB/s, ",
               speeds.upload > 0.0 ? c10::str("upload ", rounded(speeds.upload), " GB/s, ") : "",
               "AdamW ", rounded(speeds.update), " GB/s");
  if (speeds.upload > 0.0 && speeds.upload < 5.0) {
    return {Status::warning, what,
            "the PCIe link is narrow or slow: nvidia-smi -q -d PCI shows its width and generation"};
  }
  if (speeds.update < 0.25 * speeds.copy) {
    return {Status::warning, what,
            "the update is far below the speed of a copy: look for another program on this "
            "device or core (nvidia-smi, top), and for OMP_NUM_THREADS"};
  }
  return {Status::ok, what, ""};
}

}  // namespace lockstep::doctor
