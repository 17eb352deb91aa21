#include <ATen/ops/ones_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/checkpointing/activation/chain_costs.h>
#include <lockstep/checkpointing/activation/memory_meter.h>
#include <lockstep/checkpointing/activation/rng_state.h>
#include <lockstep/checkpointing/activation/scratch_buffers.h>
#include <lockstep/collectives/error.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>

namespace lockstep {

namespace {

double seconds_now(const at::Device& device) {
  if (!device.is_cpu()) {
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<at::Tensor> trainable(const at::Tensor& input, const ChainStage& stage) {
  std::vector<at::Tensor> all = stage.parameters();
  all.push_back(input);
  all.erase(std::remove_if(all.begin(), all.end(),
                           [](const at::Tensor& t) { return !t.requires_grad(); }),
            all.end());
  return all;
}

struct Measured {
  StageCosts costs;
  at::Tensor output;
};

// Gradients go to grad()'s result: no .grad is written and no parameter's hook fires.
Measured measure_once(const ChainStage& stage, const at::Tensor& input) {
  const at::Device device = input.device();
  Measured measured;
  StageCosts& costs = measured.costs;
  MemoryMeter meter(device.type());
  const double start = seconds_now(device);
  const at::Tensor output = stage.forward(input);
  const double middle = seconds_now(device);
  LOCKSTEP_CHECK(output.requires_grad(), "profile_chain: stage '", stage.name,
                 "' returns a tensor that needs no gradient: leave it out of the chain");
  costs.saved_bytes = meter.live();
  costs.forward_temporary_bytes = meter.peak() - meter.live();
  costs.output_bytes = static_cast<int64_t>(output.nbytes());
  const at::Tensor gradient = at::ones_like(output);
  const int64_t before = meter.live();
  meter.reset_peak();
  const double start_backward = seconds_now(device);
  torch::autograd::grad({output}, trainable(input, stage), {gradient}, /*retain_graph=*/false,
                        /*create_graph=*/false, /*allow_unused=*/true);
  costs.backward_seconds = seconds_now(device) - start_backward;
  costs.backward_temporary_bytes = meter.peak() - before;
  costs.forward_seconds = middle - start;
  measured.output = output.detach();
  return measured;
}

template <class Member>
void take_median(StageCosts& costs, std::vector<StageCosts>& runs, Member member) {
  auto middle = runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 2);
  std::nth_element(runs.begin(), middle, runs.end(),
                   [&](const StageCosts& a, const StageCosts& b) { return a.*member < b.*member; });
  costs.*member = (*middle).*member;
}

StageCosts measure(const ChainStage& stage, at::Tensor& input, int64_t repeats) {
  const activation::ScratchBuffers scratch(stage.buffers());
  Measured measured = measure_once(stage, input);
  std::vector<StageCosts> runs;
  for (int64_t run = 0; run < repeats; ++run) {
    runs.push_back(measure_once(stage, input).costs);
  }
  StageCosts& costs = measured.costs;
  costs.name = stage.name;
  take_median(costs, runs, &StageCosts::forward_seconds);
  take_median(costs, runs, &StageCosts::backward_seconds);
  take_median(costs, runs, &StageCosts::saved_bytes);
  take_median(costs, runs, &StageCosts::forward_temporary_bytes);
  take_median(costs, runs, &StageCosts::backward_temporary_bytes);
  costs.saved_bytes = std::max(costs.saved_bytes, costs.output_bytes);
  input = measured.output.requires_grad_();
  return costs;
}

}  // namespace

ChainCosts profile_chain(const Chain& chain, const at::Tensor& sample, int64_t repeats) {
  LOCKSTEP_CHECK(!chain.empty(), "profile_chain: the chain has no stages");
  LOCKSTEP_CHECK(repeats >= 1, "profile_chain: repeats is ", repeats, ", it must be at least 1");
  const activation::RngGuard rng(activation::RngState::current());
  at::Tensor input = sample.detach();
  if (sample.requires_grad()) {
    input.requires_grad_();
  }
  ChainCosts costs;
  for (const ChainStage& stage : chain) {
    costs.push_back(measure(stage, input, repeats));
  }
  return costs;
}

}  // namespace lockstep
