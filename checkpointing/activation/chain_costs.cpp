#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/checkpointing/activation/impl/chain_costs.h>
#include <lockstep/checkpointing/activation/impl/rng_state.h>
#include <lockstep/checkpointing/activation/impl/saved_slot.h>
#include <lockstep/checkpointing/activation/impl/scratch_buffers.h>
#include <lockstep/checkpointing/activation/memory_meter.h>
#include <lockstep/checkpointing/activation/recomputing.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/as_error.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

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

/// Casts of weights that autocast caches would outlive the graph that made them.
class NoAutocastCache {
 public:
  NoAutocastCache() { at::autocast::set_autocast_cache_enabled(false); }
  ~NoAutocastCache() { at::autocast::set_autocast_cache_enabled(outer_); }
  NoAutocastCache(const NoAutocastCache&) = delete;
  NoAutocastCache& operator=(const NoAutocastCache&) = delete;

 private:
  const bool outer_ = at::autocast::is_autocast_cache_enabled();
};

/// The tensor as a stage of a chain gets it: with no other reference.
at::Tensor handed_over(const at::Tensor& input) {
  return input.clone();
}

/// Forward without autograd. Returns the output.
at::Tensor measure_passing(const ChainStage& stage, const at::Tensor& input, StageCosts& costs) {
  const at::NoGradGuard no_grad;
  const MemoryMeter meter(input.device().type());
  at::Tensor passed = handed_over(input);
  const int64_t input_bytes = meter.live();
  at::Tensor output = stage.forward(std::move(passed));
  costs.output_bytes = static_cast<int64_t>(output.storage().nbytes());
  costs.passing_temporary_bytes =
      std::max<int64_t>(0, meter.peak() - input_bytes - costs.output_bytes);
  return output;
}

/// Drops the gradients of weights when they come, as training does that adds or packs them.
class DroppedGradients {
 public:
  explicit DroppedGradients(std::vector<at::Tensor> weights) {
    for (at::Tensor& weight : weights) {
      if (weight.requires_grad()) {
        const unsigned hook = weight.register_hook([](const at::Tensor& gradient) {
          return at::zeros({}, gradient.options()).expand(gradient.sizes());
        });
        hooks_.emplace_back(std::move(weight), hook);
      }
    }
  }
  ~DroppedGradients() {
    for (auto& [weight, hook] : hooks_) {
      weight.remove_hook(hook);
    }
  }
  DroppedGradients(const DroppedGradients&) = delete;
  DroppedGradients& operator=(const DroppedGradients&) = delete;

 private:
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;
};

/// Backward of a graph whose output is freed. The gradients are dropped: no .grad is written and no
/// hook of a parameter runs.
void run_backward(const torch::autograd::Edge& root, const at::Tensor& gradient,
                  const std::vector<at::Tensor>& wanted) {
  torch::autograd::edge_list edges;
  for (const at::Tensor& tensor : wanted) {
    edges.push_back(torch::autograd::impl::gradient_edge(tensor));
  }
  torch::autograd::Engine::get_default_engine().execute({root}, {gradient}, /*keep_graph=*/false,
                                                        /*create_graph=*/false,
                                                        /*accumulate_grad=*/false, edges);
}

void measure_once(const ChainStage& stage, const at::Tensor& input, const at::Tensor& output_like,
                  StageCosts& costs) {
  const at::Device device = input.device();
  MemoryMeter meter(device.type());
  at::Tensor passed = handed_over(input);
  const int64_t input_bytes = meter.live();
  const activation::StorageIdentity input_storage(passed);
  const activation::TensorIdentity input_identity(passed);
  const double start = seconds_now(device);
  at::Tensor output = stage.forward(std::move(passed));
  costs.forward_seconds = seconds_now(device) - start;
  const int64_t peak = meter.peak();
  costs.has_gradient = output.requires_grad();
  costs.changes_input = input_identity.current_version() != input_identity.version();
  if (!costs.has_gradient) {
    costs.keeps_output = false;
    costs.keeps_input = false;
    costs.forward_temporary_bytes = std::max<int64_t>(0, peak - input_bytes);
    return;
  }
  const torch::autograd::Edge root = torch::autograd::impl::gradient_edge(output);
  const bool is_input = input_storage.is_of(output);
  const activation::StorageIdentity output_storage(output);
  output.reset();
  costs.keeps_output = !is_input && !output_storage.is_freed();
  costs.keeps_input = !input_storage.is_freed();
  const int64_t kept_input = costs.keeps_input ? input_bytes : 0;
  costs.saved_bytes = meter.live() - kept_input;
  costs.forward_temporary_bytes = std::max<int64_t>(0, peak - input_bytes - costs.saved_bytes);

  const at::Tensor gradient = at::ones_like(output_like);
  const int64_t before = meter.live();
  meter.reset_peak();
  const double start_backward = seconds_now(device);
  run_backward(root, gradient, trainable(input, stage));
  costs.backward_seconds = seconds_now(device) - start_backward;
  costs.backward_temporary_bytes = meter.peak() - before;
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
  const DroppedGradients dropped(stage.parameters());
  StageCosts costs;
  measure_passing(stage, input, costs);  // warm-up: the first runs allocate workspaces that stay
  const at::Tensor output = measure_passing(stage, input, costs);
  measure_once(stage, input, output, costs);
  std::vector<StageCosts> runs(repeats, costs);
  for (StageCosts& run : runs) {
    measure_once(stage, input, output, run);
  }
  costs = runs.back();
  costs.name = stage.name;
  take_median(costs, runs, &StageCosts::forward_seconds);
  take_median(costs, runs, &StageCosts::backward_seconds);
  take_median(costs, runs, &StageCosts::saved_bytes);
  take_median(costs, runs, &StageCosts::forward_temporary_bytes);
  take_median(costs, runs, &StageCosts::backward_temporary_bytes);
  input = output.detach().set_requires_grad(costs.has_gradient);
  return costs;
}

}  // namespace

ChainCosts profile_chain(const Chain& chain, const at::Tensor& sample, int64_t repeats) {
  LOCKSTEP_CHECK(!chain.empty(), "profile_chain: the chain has no stages");
  LOCKSTEP_CHECK(repeats >= 1, "profile_chain: repeats is ", repeats, ", it must be at least 1");
  const activation::RngGuard rng(activation::RngState::current());
  const NoAutocastCache no_cache;
  const activation::RecomputingScope no_state;  // these forwards count as recompute
  at::Tensor input = sample.detach();
  if (sample.requires_grad()) {
    input.requires_grad_();
  }
  ChainCosts costs;
  for (const ChainStage& stage : chain) {
    try {
      costs.push_back(measure(stage, input, repeats));
    } catch (const c10::Error&) {
      const Error error = detail::as_error(std::current_exception());
      throw Error(
          c10::str("profile_chain: stage ", costs.size(), " ('", stage.name, "') fails on ",
                   costs.empty() ? "the chain's input" : "what the stage before it returns", ": ",
                   error.what(),
                   ". Does forward() do more between the stages? Then list what it runs one after "
                   "another as a PlannedChain"),
          error.code());
    }
  }
  return costs;
}

}  // namespace lockstep
