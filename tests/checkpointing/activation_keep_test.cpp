// keep(): what it costs, what it forbids, how long it holds.
#include <gmock/gmock.h>
#include <lockstep/checkpointing/activation/impl/operator_trace.h>
#include <lockstep/checkpointing/activation/keep.h>
#include <lockstep/checkpointing/activation/memory_meter.h>
#include <lockstep/collectives/exceptions.h>

#include <algorithm>

#include "activation_trial.h"
#include "test_names.h"

namespace lockstep::testing {
namespace {

struct Cost {
  int64_t megabytes;
  int64_t products_in_backward;
  at::Tensor gradient;
};

Cost cost_of(const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>& f) {
  torch::manual_seed(3);
  const at::Tensor a = torch::randn({512, 512}, at::requires_grad());
  const at::Tensor b = torch::randn({512, 512}, at::requires_grad());
  MemoryMeter meter;
  const at::Tensor y = f(a, b);
  const int64_t live = meter.live();
  std::vector<std::string> operators;
  {
    activation::OperatorTrace trace(operators);
    y.backward();
  }
  return {(live + (1 << 19)) >> 20, std::count(operators.begin(), operators.end(), "aten::mm"),
          a.grad()};
}

TEST(KeptTensors, KeptProductCostsItsOutputAndNoRecompute) {
  const auto f = [](const at::Tensor& a, const at::Tensor& b) { return a.cos().mm(b).sin().sum(); };
  const auto kept = [](const at::Tensor& a, const at::Tensor& b) {
    return keep([](const at::Tensor& l, const at::Tensor& r) { return l.mm(r); }, a.cos(), b)
        .sin()
        .sum();
  };
  const Cost plain = cost_of(f);
  EXPECT_EQ(plain.megabytes, 2);
  EXPECT_EQ(plain.products_in_backward, 2);
  const Cost all =
      cost_of([&](const at::Tensor& a, const at::Tensor& b) { return checkpoint(f, a, b); });
  EXPECT_EQ(all.megabytes, 0);
  EXPECT_EQ(all.products_in_backward, 3);
  const Cost selective =
      cost_of([&](const at::Tensor& a, const at::Tensor& b) { return checkpoint(kept, a, b); });
  EXPECT_EQ(selective.megabytes, 1);
  EXPECT_EQ(selective.products_in_backward, 2);
  EXPECT_TRUE(torch::equal(plain.gradient, all.gradient));
  EXPECT_TRUE(torch::equal(plain.gradient, selective.gradient));
}

TEST(KeptTensors, KeptTensorChangedInPlaceThrows) {
  const at::Tensor x = torch::randn({4, 4}, at::requires_grad());
  const at::Tensor y = checkpoint(
      [](const at::Tensor& in) {
        at::Tensor h = keep([](const at::Tensor& a) { return a.mm(a); }, in.sin());
        return h.relu_().exp();
      },
      x);
  EXPECT_THAT(message_of<Error>([&] { y.sum().backward(); }),
              HasSubstr("has been modified in place since"));
}

// Python's selective form allows one backward; here a retained graph may run again.
TEST(KeptTensors, KeptTensorsLiveAsLongAsTheGraph) {
  const at::Tensor x = torch::randn({256, 256}, at::requires_grad());
  const auto f = [](const at::Tensor& in) {
    return keep([](const at::Tensor& a) { return a.mm(a); }, in.sin()).exp().sum();
  };
  MemoryMeter meter;
  {
    const at::Tensor dropped = checkpoint(f, x);
    EXPECT_GT(meter.live(), 256 * 256 * 4);
  }
  EXPECT_EQ(meter.live(), 0);
  const at::Tensor expected = torch::autograd::grad({f(x)}, {x})[0];
  const int64_t before = meter.live();
  const at::Tensor y = checkpoint(f, x);
  for (bool retain : {true, true, false}) {
    EXPECT_TRUE(torch::equal(torch::autograd::grad({y}, {x}, {}, retain)[0], expected));
  }
  EXPECT_LE(meter.live() - before, 64);  // y itself
}

}  // namespace
}  // namespace lockstep::testing
