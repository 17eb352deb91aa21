// Activation checkpointing, offload, the meter and the planner on a GPU: the bits of the plain run.
#include <ATen/autocast_mode.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/checkpointing/activation/memory_meter.h>
#include <lockstep/checkpointing/activation/offload.h>
#include <lockstep/checkpointing/activation/plan_checkpoints.h>

#include <optional>

#include "activation_trial.h"

namespace lockstep::testing {
namespace {

using torch::nn::Linear;
using torch::nn::Sequential;
using Forward = std::function<at::Tensor(const at::Tensor&)>;

const c10::Device gpu(c10::DeviceType::CUDA, 0);

at::Tensor gpu_rng_state() {
  at::Generator generator = at::globalContext().defaultGenerator(gpu);
  return generator.get_state().clone();
}

Sequential deep() {
  Sequential net;
  for (int layer = 0; layer < 8; ++layer) {
    net->push_back(Linear(128, 128));
    net->push_back(torch::nn::GELU());
    net->push_back(torch::nn::Dropout(0.2));
  }
  net->to(gpu);
  return net;
}

at::Tensor batch() {
  torch::manual_seed(3);
  return torch::randn({2048, 128}).to(gpu).requires_grad_();
}

struct GpuTrial {
  Trial trial;
  at::Tensor rng_after_forward;
  at::Tensor rng_after_backward;
};

GpuTrial run_on_gpu(Sequential& net, const Forward& forward) {
  GpuTrial result;
  const auto noted = [&](const at::Tensor& x) {
    at::Tensor y = forward(x);
    result.rng_after_forward = gpu_rng_state();
    return y;
  };
  result.trial = run_trial(net, noted, batch());
  result.rng_after_backward = gpu_rng_state();
  return result;
}

void expect_equal(const GpuTrial& plain, const GpuTrial& other, const std::string& what) {
  expect_equal(plain.trial, other.trial, what);
  EXPECT_TRUE(torch::equal(plain.rng_after_forward, other.rng_after_forward)) << what;
  EXPECT_TRUE(torch::equal(plain.rng_after_backward, other.rng_after_backward)) << what;
}

Forward plain_forward(Sequential& net) {
  return [&net](const at::Tensor& x) { return net->forward(x); };
}

TEST(Recompute, DropoutOnAGpuDrawsTheSameNumbersInRecompute) {
  Sequential net = deep();
  const GpuTrial plain = run_on_gpu(net, plain_forward(net));
  const Forward whole = [&](const at::Tensor& x) { return checkpoint(net, x); };
  const Forward parts = [&](const at::Tensor& x) { return checkpoint_sequential(net, 4, x); };
  const Forward nested = [&](const at::Tensor& x) {
    return checkpoint([net](const at::Tensor& h) mutable { return checkpoint(net, h); }, x);
  };
  expect_equal(plain, run_on_gpu(net, whole), "one region");
  expect_equal(plain, run_on_gpu(net, parts), "four segments");
  expect_equal(plain, run_on_gpu(net, nested), "nested");
}

TEST(Recompute, GeneratorsOfHostAndGpuAreRestoredTogether) {
  const auto f = [](const at::Tensor& in) {
    return torch::sin(in * torch::rand({64}).to(gpu) * torch::rand({64}, in.options()));
  };
  const auto gradient = [&](bool checkpointed) {
    torch::manual_seed(5);
    const at::Tensor x = torch::ones({64}, gpu).requires_grad_();
    const at::Tensor y = checkpointed ? checkpoint(f, x) : f(x);
    torch::manual_seed(6);  // another stream in between stays untouched
    const at::Tensor between = gpu_rng_state();
    y.sum().backward();
    EXPECT_TRUE(torch::equal(between, gpu_rng_state()));
    return x.grad();
  };
  EXPECT_TRUE(torch::equal(gradient(false), gradient(true)));
}

TEST(Recompute, AutocastOfAGpuHoldsOnTheThreadOfBackward) {
  Sequential net = deep();
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const auto under_autocast = [&](const Forward& forward) -> Forward {
      return [&, forward](const at::Tensor& x) {
        const auto outer = at::autocast::get_autocast_dtype(at::kCUDA);
        at::autocast::set_autocast_enabled(at::kCUDA, true);
        at::autocast::set_autocast_dtype(at::kCUDA, dtype);
        at::Tensor y = forward(x);
        at::autocast::clear_cache();
        at::autocast::set_autocast_dtype(at::kCUDA, outer);
        at::autocast::set_autocast_enabled(at::kCUDA, false);
        EXPECT_EQ(y.scalar_type(), dtype);
        return y;
      };
    };
    const GpuTrial plain = run_on_gpu(net, under_autocast(plain_forward(net)));
    const GpuTrial ours = run_on_gpu(
        net, under_autocast([&](const at::Tensor& x) { return checkpoint_sequential(net, 4, x); }));
    expect_equal(plain, ours, c10::toString(dtype));
  }
}

TEST(Recompute, RecomputeRunsOnTheStreamOfForward) {
  const c10::impl::VirtualGuardImpl devices(gpu.type());
  const c10::Stream side = devices.getStreamFromGlobalPool(gpu);
  const c10::Stream other = devices.getStreamFromGlobalPool(gpu);
  std::vector<c10::Stream> streams;
  const at::Tensor x = batch();
  devices.synchronizeDevice(gpu.index());
  at::Tensor y;
  {
    const c10::StreamGuard guard(side);
    y = checkpoint(
        [&](const at::Tensor& in) {
          streams.push_back(devices.getStream(gpu));
          const at::Tensor h = in.sin();
          devices.synchronizeStream(side);
          const c10::StreamGuard inner(other);  // backward begins here, and asks for the recompute
          return h.exp();
        },
        x);
  }
  devices.synchronizeStream(side);
  devices.synchronizeStream(other);
  y.sum().backward();
  EXPECT_EQ(streams, std::vector<c10::Stream>(2, side));
  EXPECT_EQ(devices.getStream(gpu), devices.getDefaultStream(gpu));
  const at::Tensor in = x.detach();
  EXPECT_TRUE(torch::equal(x.grad(), in.sin().exp() * in.cos()));
}

struct Offloaded {
  GpuTrial run;
  int64_t peak = 0;
  OffloadActivations::Figures figures;
};

Offloaded run_offloaded(Sequential& net, const Forward& forward, bool offloads) {
  Offloaded result;
  run_on_gpu(net, forward);  // workspaces are there afterwards
  MemoryMeter meter(gpu.type());
  std::optional<OffloadActivations> offload;
  result.run = run_on_gpu(net, [&](const at::Tensor& x) {
    if (offloads) {
      offload.emplace(net);
    }
    return forward(x);
  });
  result.peak = meter.peak();
  if (offload.has_value()) {
    result.figures = offload->figures();
  }
  return result;
}

TEST(OffloadedTensors, OffloadFromAGpuLowersThePeakWithThePlainGradients) {
  Sequential net = deep();
  const Forward forward = plain_forward(net);
  const Offloaded plain = run_offloaded(net, forward, false);
  const Offloaded ours = run_offloaded(net, forward, true);
  expect_equal(plain.run, ours.run, "offloaded");
  EXPECT_LT(ours.peak, plain.peak * 2 / 3);
  EXPECT_EQ(ours.figures.loads, ours.figures.tensors);
  EXPECT_GE(ours.figures.prefetched, ours.figures.loads - 2);

  const Forward segments = [&](const at::Tensor& x) { return checkpoint_sequential(net, 8, x); };
  const Offloaded inputs = run_offloaded(net, segments, true);
  expect_equal(plain.run, inputs.run, "inputs of segments offloaded");
  EXPECT_GE(inputs.figures.tensors, 7);
}

TEST(MemoryMeter, CountsTheBytesOfAGpuAndOnlyThose) {
  c10::getDeviceAllocator(gpu.type())->emptyCache();  // larger free blocks would be given out
  const MemoryMeter meter(gpu.type());
  const at::Tensor on_host = torch::empty({1 << 20});
  EXPECT_EQ(meter.live(), 0);
  at::Tensor kept = torch::empty({1 << 20}, gpu);
  EXPECT_EQ(meter.live(), 4 << 20);
  torch::empty({1 << 20}, gpu);
  EXPECT_EQ(meter.live(), 4 << 20);
  EXPECT_EQ(meter.peak(), 8 << 20);
  kept.reset();
  EXPECT_EQ(meter.live(), 0);
}

/// Of one forward and backward of the chain, without its loss.
int64_t chain_peak(const CheckpointPlan& plan, const Chain& chain, const at::Tensor& x) {
  MemoryMeter meter(gpu.type());
  at::Tensor y = plan.run(chain, x);
  const int64_t forward = meter.peak();
  y.register_hook([&](const at::Tensor&) { meter.reset_peak(); });
  const at::Tensor loss = y.square().mean();
  y.reset();
  loss.backward();
  return std::max(forward, meter.peak());
}

TEST(PlanCheckpoints, PlanRunsAsPredictedOnAGpuWithThePlainGradients) {
  Sequential net = deep();
  const Chain chain = chain_of(net);
  const at::Tensor x = batch().detach();
  const ChainCosts costs = profile_chain(chain, x);
  const GpuTrial plain = run_on_gpu(net, plain_forward(net));
  const int64_t least = least_activation_bytes(costs);
  const auto stages = static_cast<int64_t>(chain.size());
  const int64_t most = CheckpointPlan::uniform(stages, 1).predict(costs).peak_bytes;
  for (const int64_t budget : {least, least + (most - least) / 2, most}) {
    const CheckpointPlan plan = plan_checkpoints(costs, budget);
    const Forward planned = [&](const at::Tensor& in) { return plan.run(chain, in); };
    expect_equal(plain, run_on_gpu(net, planned), plan.text());
    const auto predicted = static_cast<double>(plan.predict(costs).peak_bytes);
    EXPECT_LE(predicted, static_cast<double>(budget)) << plan.text();
    EXPECT_LE(static_cast<double>(chain_peak(plan, chain, x)), 1.03 * predicted) << plan.text();
  }
}

}  // namespace
}  // namespace lockstep::testing
