// Operators that save a tensor for backward first and fill it afterwards, as LibTorch's rrelu does
// with its noise: the version of the tensor does not tell.
#include <gtest/gtest.h>
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/checkpointing/activation/keep.h>
#include <lockstep/checkpointing/activation/offload.h>
#include <lockstep/checkpointing/activation/planned_chain.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::testing {
namespace {

using Function = std::function<at::Tensor(at::Tensor)>;

/// The gradient of a multiplication with noise.
struct TimesNoise : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return {gradients[0] * noise.unpack()};
  }
  torch::autograd::SavedVariable noise;
  torch::autograd::SavedVariable input;
};

enum class Order { noise_first, noise_last, noise_alone };

void fill(at::Tensor noise) {
  const at::NoGradGuard no_grad;
  noise.data().uniform_(0.5, 1.5);
}

/// Saves the noise, then fills it: what a custom operator may do.
at::Tensor times_noise(const at::Tensor& x, Order order, bool resizes) {
  at::Tensor noise = resizes ? at::empty({0}, x.options()) : at::empty(x.sizes(), x.options());
  const std::shared_ptr<TimesNoise> node(new TimesNoise, torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(x));
  if (order == Order::noise_last) {
    node->input = torch::autograd::SavedVariable(x, false);
  }
  node->noise = torch::autograd::SavedVariable(noise, false);
  if (order == Order::noise_first) {
    node->input = torch::autograd::SavedVariable(x, false);
  }
  if (resizes) {
    noise.data().resize_(x.sizes());
    noise.unsafeGetTensorImpl()->set_sizes_contiguous(x.sizes());
  }
  fill(noise);
  at::Tensor y;
  {
    const at::NoGradGuard no_grad;
    y = x * noise;
  }
  torch::autograd::set_history(y, node);
  return y;
}

/// A node of its own saves the input, between the save of the noise and its fill.
at::Tensor times_noise_of_two_nodes(const at::Tensor& x) {
  at::Tensor noise = at::empty(x.sizes(), x.options());
  const std::shared_ptr<TimesNoise> node(new TimesNoise, torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(x));
  node->noise = torch::autograd::SavedVariable(noise, false);
  const at::Tensor sines = x.sin();
  fill(noise);
  at::Tensor y;
  {
    const at::NoGradGuard no_grad;
    y = x * noise;
  }
  torch::autograd::set_history(y, node);
  return y + sines;
}

std::map<std::string, Function> functions() {
  const auto rrelu = [](at::Tensor x) { return at::rrelu(x, 0.1, 0.9, true); };
  std::map<std::string, Function> all;
  all["rrelu"] = rrelu;
  all["rrelu, then no save"] = [=](at::Tensor x) { return rrelu(x) + x; };
  all["rrelu, then a save"] = [=](at::Tensor x) { return rrelu(x).sin(); };
  all["rrelu twice"] = [=](at::Tensor x) { return rrelu(rrelu(x * 2)); };
  all["rrelu before a product"] = [=](at::Tensor x) { return rrelu(x.cos()).mm(x); };
  all["rrelu in place"] = [](at::Tensor x) { return at::rrelu_(x = x * 1, 0.1, 0.9, true); };
  all["rrelu of a module"] = [](at::Tensor x) {
    return torch::nn::RReLU(torch::nn::RReLUOptions().lower(0.1).upper(0.9))(x.sin());
  };
  all["rrelu with noise"] = [](at::Tensor x) {
    at::Tensor noise = at::empty_like(x.detach());
    return at::rrelu_with_noise(x, noise, 0.1, 0.9, true);
  };
  all["noise first"] = [](at::Tensor x) { return times_noise(x, Order::noise_first, false); };
  all["noise last"] = [](at::Tensor x) { return times_noise(x, Order::noise_last, false); };
  all["noise alone"] = [](at::Tensor x) { return times_noise(x, Order::noise_alone, false); };
  all["noise resized"] = [](at::Tensor x) { return times_noise(x, Order::noise_last, true); };
  all["noise of two nodes"] = times_noise_of_two_nodes;
  return all;
}

at::Tensor input() {
  torch::manual_seed(1);
  return at::randn({64, 64});
}

std::vector<at::Tensor> run(const Function& function, bool twice = false) {
  at::Tensor x = input().requires_grad_();
  torch::manual_seed(2);
  at::Tensor y = function(x);
  const at::Tensor loss = (y * y.detach().cos()).sum();
  std::vector<at::Tensor> results{y.detach()};
  for (int i = 0; i < (twice ? 2 : 1); ++i) {
    results.push_back(torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/twice)[0]);
  }
  return results;
}

using Way = std::function<at::Tensor(const Function&, at::Tensor)>;

/// Both run the function that they are given.
void expect_plain_bits(const Way& plain_way, const Way& our_way) {
  for (const auto& [name, function] : functions()) {
    const Function plain_function = [&, f = function](at::Tensor x) { return plain_way(f, x); };
    const Function our_function = [&, f = function](at::Tensor x) { return our_way(f, x); };
    for (const bool twice : {false, true}) {
      const std::vector<at::Tensor> plain = run(plain_function, twice);
      const std::vector<at::Tensor> ours = run(our_function, twice);
      for (std::size_t i = 0; i < plain.size(); ++i) {
        EXPECT_TRUE(torch::equal(plain[i], ours[i])) << name << ": result " << i;
      }
    }
  }
}

at::Tensor once(const Function& f, at::Tensor x) {
  return f(std::move(x));
}

at::Tensor two_times(const Function& f, at::Tensor x) {
  return f(f(std::move(x)));
}

TEST(SavedBeforeFilled, CheckpointHasThePlainBits) {
  expect_plain_bits(once,
                    [](const Function& f, at::Tensor x) { return checkpoint(f, std::move(x)); });
}

TEST(SavedBeforeFilled, NestedCheckpointHasThePlainBits) {
  expect_plain_bits(two_times, [](const Function& f, at::Tensor x) {
    return checkpoint([f](at::Tensor h) { return checkpoint(f, f(h)); }, std::move(x));
  });
  expect_plain_bits(two_times, [](const Function& f, at::Tensor x) {
    return checkpoint([f](at::Tensor h) { return f(checkpoint(f, h)); }, std::move(x));
  });
}

TEST(SavedBeforeFilled, KeepHasThePlainBits) {
  expect_plain_bits(two_times, [](const Function& f, at::Tensor x) {
    return checkpoint([f](at::Tensor h) { return keep(f, f(h)); }, std::move(x));
  });
}

TEST(SavedBeforeFilled, OffloadHasThePlainBits) {
  const OffloadOptions options = OffloadOptions().min_bytes(0);
  expect_plain_bits(once, [options](const Function& f, at::Tensor x) {
    const OffloadActivations offload(std::vector<at::Tensor>{}, options);
    return f(std::move(x));
  });
  std::optional<OffloadActivations> offload;  // lives while backward runs
  expect_plain_bits(two_times, [&](const Function& f, at::Tensor x) {
    offload.reset();
    offload.emplace(std::vector<at::Tensor>{}, options);
    return checkpoint(f, f(std::move(x)));
  });
}

TEST(SavedBeforeFilled, BudgetHasThePlainBits) {
  const Way four_times = [](const Function& f, at::Tensor x) {
    return two_times(f, two_times(f, std::move(x)));
  };
  expect_plain_bits(four_times, [](const Function& f, at::Tensor x) {
    const PlannedChain planned(Chain(4, ChainStage{"stage", f}));
    planned.set_budget("automatic");
    return planned(std::move(x));
  });
}

/// A region ends with a product whose operands were computed before: it is not run again.
TEST(SavedBeforeFilled, RecomputeStopsBeforeAProductAsEver) {
  const at::Tensor weight = at::randn({64, 64}, at::requires_grad());
  const at::Tensor frozen = at::randn({64, 64});
  for (const at::Tensor& w : {weight, frozen}) {
    const auto ends = std::make_shared<int>(0);
    const at::Tensor x = input().requires_grad_();
    at::Tensor y = checkpoint(
        [w, ends](at::Tensor h) {
          h = at::dropout(h.sin(), 0.5, true).cos().mm(w);
          ++*ends;
          return h;
        },
        x);
    y.sum().backward();
    EXPECT_EQ(*ends, 1);
  }
}

/// An offloaded tensor without a gradient leaves as soon as its operator has ended.
TEST(SavedBeforeFilled, OffloadHoldsOnlyTheLastOperatorsTensors) {
  at::Tensor x = input().requires_grad_();
  const OffloadActivations offload(std::vector<at::Tensor>{}, OffloadOptions().min_bytes(0));
  for (int i = 0; i < 10; ++i) {
    x = x * at::ones({64, 64});
  }
  EXPECT_GE(offload.figures().tensors, 8);
}

}  // namespace
}  // namespace lockstep::testing
