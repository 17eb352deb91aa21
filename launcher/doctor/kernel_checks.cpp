#include "doctor/kernel_checks.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <hwy/targets.h>
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
  amp::add_moments(span, rule);
  const amp::StepState first = state_of(1);
  rule.apply(span, &first);
  for (at::Tensor* array : {&span.gradient, &span.master, &span.weight}) {
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
                         const at::Tensor there = bytes_of(&state, sizeof state, device);
                         rule->apply(span,
                                     static_cast<const amp::StepState*>(there.const_data_ptr()));
                         wait_for(span.master);
                         Tensors outputs{span.master, span.weight};
                         if (format == MomentFormat::fp32) {
                           outputs.insert(outputs.end(), span.moments.begin(), span.moments.end());
                         }
                         return outputs;
                       }});
  }
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
  return at::allclose(a.to(at::kFloat), b.to(at::kFloat), own, tolerance);
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
    kernels.push_back(
        {c10::str("casts of ", from), 0.0, [=](c10::Device device) {
           const at::Tensor source = values(size, 3).to(from).to(device);
           const int64_t first = size / 3;  // arrays of different sizes
           const at::Tensor target = at::empty({size}, source.options().dtype(at::kHalf));
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
    kernels.push_back({c10::str("measure ", from), 1e-6, [=](c10::Device device) {
                         const at::Tensor totals =
                             at::zeros({2}, at::TensorOptions().dtype(at::kDouble).device(device));
                         amp::measure_into(values(size, 6).to(from).to(device), totals);
                         return Tensors{totals};
                       }});
  }
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
    const at::Tensor locked = at::empty({elements}, at::kFloat).pin_memory(device);
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
  const at::Tensor there = bytes_of(&state, sizeof state, device);
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
