// What captured steps read of the host: their inputs are new in each step, all else is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <string>

#include "error_of.h"
#include "runtime/cuda_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

using Inputs = std::vector<at::Tensor>;

constexpr int64_t kSteps = 8;  // the fourth is captured

/// What the loop has drawn for a step, in the memory of the host.
struct Drawn {
  at::Tensor x, y;
  at::Tensor classes;  // of the rows
  at::Tensor factor;   // no dimension
};

Drawn drawn(int64_t step) {
  const auto [x, y] = rows_of(step, 0, 32);
  return {x, y, (at::arange(32) * (step + 3) % 7 % 2).to(at::kLong),
          at::full({}, 1.0F + 0.1F * static_cast<float>(step))};
}

at::Tensor pinned(const at::Tensor& tensor) {
  return tensor.is_pinned() ? tensor : tensor.pin_memory();
}

/// Copies to the device in its backward.
struct ScaledBackward : torch::autograd::Function<ScaledBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& scales) {
    context->saved_data["scales"] = scales;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const at::Tensor scales = context->saved_data["scales"].toTensor();
    return {grads[0] * scales.to(grads[0].device(), /*non_blocking=*/true), at::Tensor()};
  }
};

class CapturedInputs : public ::testing::Test {
 protected:
  using Step = std::function<void(DeviceRun&, int64_t step)>;

  at::Tensor weights_after(bool graph, const Step& step) {
    DeviceRun run(runtime_, TrainerOptions().cuda_graph(graph));
    for (int64_t k = 0; k < kSteps; ++k) {
      step(run, k);
    }
    return run.masters();
  }
  void expect_same_bits(const Step& step) {
    const at::Tensor plain = weights_after(false, step);
    EXPECT_TRUE(at::equal(weights_after(true, step), plain));
  }

  Runtime runtime_ = Runtime::solo(RuntimeOptions().device(DeviceKind::cuda));
};

TEST_F(CapturedInputs, OfTheHostAreNewInEachStepAndReachTheClosureOnTheDevice) {
  expect_same_bits([](DeviceRun& run, int64_t step) {
    const Drawn batch = drawn(step);
    run.trainer->step({batch.x, batch.y},
                      [&](const Inputs& in) -> Loss { return run.model->loss(in[0], in[1]); });
  });
}

TEST_F(CapturedInputs, MayBeMovedOnceMoreByTheClosure) {
  expect_same_bits([](DeviceRun& run, int64_t step) {
    const Drawn batch = drawn(step);
    run.trainer->step({batch.x, batch.y}, [&](const Inputs& in) -> Loss {
      return run.model->loss(run.trainer->to_device(in[0]), run.trainer->to_device(in[1]));
    });
  });
}

TEST_F(CapturedInputs, MayBeOnTheHostAndOnTheDevice) {
  expect_same_bits([](DeviceRun& run, int64_t step) {
    const Drawn batch = drawn(step);
    run.trainer->step({run.trainer->to_device(batch.x), batch.y},
                      [&](const Inputs& in) -> Loss { return run.model->loss(in[0], in[1]); });
  });
}

TEST_F(CapturedInputs, MayBeAnywhereInTheNextStep) {
  expect_same_bits([](DeviceRun& run, int64_t step) {
    const Drawn batch = drawn(step);
    const at::Tensor x = step % 2 == 0 ? run.trainer->to_device(batch.x) : batch.x;
    run.trainer->step({x, batch.y},
                      [&](const Inputs& in) -> Loss { return run.model->loss(in[0], in[1]); });
  });
}

TEST_F(CapturedInputs, OfAnyDtypeAndShapeAreNewInEachStep) {
  expect_same_bits([](DeviceRun& run, int64_t step) {
    const Drawn batch = drawn(step);
    const at::Tensor rows = at::cat({batch.x, batch.x}, 1).narrow(1, 0, 4).to(at::kDouble);
    run.trainer->step({rows, batch.classes, batch.factor}, [&](const Inputs& in) -> Loss {
      const at::Tensor scores = run.model->forward(in[0].to(at::kFloat));
      return at::cross_entropy_loss(scores, in[1]) * in[2];
    });
  });
}

TEST_F(CapturedInputs, InPageLockedMemoryThatTheLoopFillsAgainAreNewInEachStep) {
  const Drawn first = drawn(0);
  const at::Tensor x = pinned(first.x);
  const at::Tensor y = pinned(first.y);
  expect_same_bits([&](DeviceRun& run, int64_t step) {
    const Drawn batch = drawn(step);
    at::Tensor(x).copy_(batch.x);
    at::Tensor(y).copy_(batch.y);
    run.trainer->step({x, y},
                      [&](const Inputs& in) -> Loss { return run.model->loss(in[0], in[1]); });
  });
}

TEST_F(CapturedInputs, LeaveNumbersAndWhatTheClosureMakesOfThemToTheCapture) {
  expect_same_bits([](DeviceRun& run, int64_t step) {
    const Drawn batch = drawn(step);
    run.trainer->step({batch.x, batch.y}, [&](const Inputs& in) -> Loss {
      return run.model->loss(in[0] * 0.5, in[1]) * at::full({}, 0.25F) + at::scalar_tensor(1);
    });
  });
}

struct HostRead {
  std::string what;
  std::function<Loss(DeviceRun&, const Drawn&, const Inputs&)> closure;
};

const std::vector<HostRead>& host_reads() {
  const auto there = [](const at::Tensor& like) { return like.device(); };
  static const std::vector<HostRead> reads = {
      {"ToDevice",
       [](DeviceRun& run, const Drawn& batch, const Inputs& in) -> Loss {
         return run.model->loss(run.trainer->to_device(batch.x), in[1]);
       }},
      {"To",
       [=](DeviceRun& run, const Drawn& batch, const Inputs& in) -> Loss {
         return run.model->loss(batch.x.to(there(in[0])), in[1]);
       }},
      {"ToWithoutWaiting",
       [=](DeviceRun& run, const Drawn& batch, const Inputs& in) -> Loss {
         return run.model->loss(batch.x.to(there(in[0]), /*non_blocking=*/true), in[1]);
       }},
      {"ToFromPageLockedMemory",
       [=](DeviceRun& run, const Drawn& batch, const Inputs& in) -> Loss {
         return run.model->loss(pinned(batch.x).to(there(in[0]), /*non_blocking=*/true), in[1]);
       }},
      {"ToAnotherDtype",
       [=](DeviceRun& run, const Drawn& batch, const Inputs& in) -> Loss {
         return run.model->loss(batch.x.to(at::kDouble).to(there(in[0]), at::kFloat), in[1]);
       }},
      {"ToOfATargetOnly",
       [=](DeviceRun& run, const Drawn& batch, const Inputs& in) -> Loss {
         return run.model->loss(in[0], batch.y.to(there(in[0]), /*non_blocking=*/true));
       }},
      {"ToOfIntegers",
       [=](DeviceRun& run, const Drawn& batch, const Inputs& in) -> Loss {
         return at::cross_entropy_loss(run.model->forward(in[0]), batch.classes.to(there(in[0])));
       }},
      {"ToOfASum",
       [=](DeviceRun& run, const Drawn& batch, const Inputs& in) -> Loss {
         return run.model->loss(in[0], in[1]) * batch.x.square().mean().to(there(in[0]));
       }},
      {"Copy",
       [](DeviceRun& run, const Drawn& batch, const Inputs& in) -> Loss {
         return run.model->loss(at::empty_like(in[0]).copy_(batch.x), in[1]);
       }},
      {"CopyWithoutWaiting",
       [](DeviceRun& run, const Drawn& batch, const Inputs& in) -> Loss {
         return run.model->loss(at::empty_like(in[0]).copy_(pinned(batch.x), true), in[1]);
       }},
      {"CopyIntoAView",
       [](DeviceRun& run, const Drawn& batch, const Inputs& in) -> Loss {
         const at::Tensor x = in[0].clone();
         x.narrow(0, 3, 5).copy_(batch.x.narrow(0, 3, 5));
         return run.model->loss(x, in[1]);
       }},
      {"ConstantOfManyNumbers",
       [=](DeviceRun& run, const Drawn&, const Inputs& in) -> Loss {
         return run.model->loss(in[0] * at::tensor({1.0F, 2.0F, 3.0F, 4.0F}).to(there(in[0])),
                                in[1]);
       }},
      {"Index",
       [](DeviceRun& run, const Drawn& batch, const Inputs& in) -> Loss {
         return run.model->loss(in[0].index({batch.classes}), in[1]);
       }},
      {"Factor",
       [](DeviceRun& run, const Drawn& batch, const Inputs& in) -> Loss {
         return run.model->loss(in[0], in[1]) * batch.factor;
       }},
      {"FactorOfAFactor",
       [](DeviceRun& run, const Drawn& batch, const Inputs& in) -> Loss {
         return run.model->loss(in[0], in[1]) * (at::full({}, 2.0F) * batch.factor);
       }},
      {"CopyOfAFactor",
       [](DeviceRun& run, const Drawn& batch, const Inputs& in) -> Loss {
         return run.model->loss(in[0], in[1]) * batch.factor.clone();
       }},
      {"Element",
       [](DeviceRun& run, const Drawn& batch, const Inputs& in) -> Loss {
         return run.model->loss(in[0], in[1]) * batch.x.select(0, 1).select(0, 1);
       }},
      {"Backward",
       [](DeviceRun& run, const Drawn& batch, const Inputs& in) -> Loss {
         const at::Tensor scores = run.model->forward(in[0]);
         return (ScaledBackward::apply(scores, batch.y) - in[1]).square().mean();
       }},
  };
  return reads;
}

class CapturedHostReads : public CapturedInputs, public ::testing::WithParamInterface<size_t> {};

TEST_P(CapturedHostReads, AreRefusedAndMoveNothing) {
  const HostRead& read = host_reads()[GetParam()];
  DeviceRun run(runtime_, TrainerOptions().cuda_graph(true));
  const auto step = [&](int64_t k) {
    const Drawn batch = drawn(k);
    run.trainer->step({batch.x, batch.y},
                      [&](const Inputs& in) { return read.closure(run, batch, in); });
  };
  for (int again = 0; again < 2; ++again) {
    for (int64_t k = 0; k < 3; ++k) {
      step(k);
    }
    const at::Tensor before = run.masters();
    EXPECT_THAT(error_of([&] { step(3); }),
                AllOf(HasSubstr("cuda_graph: the step cannot be captured"),
                      HasSubstr("pass it in the inputs of step(inputs, closure)")));
    EXPECT_TRUE(at::equal(run.masters(), before));
  }
  for (int64_t k = 0; k < kSteps; ++k) {
    const Drawn batch = drawn(k);
    run.trainer->step({batch.x, batch.y},
                      [&](const Inputs& in) -> Loss { return run.model->loss(in[0], in[1]); });
  }
  EXPECT_EQ(run.trainer->updates(), 6 + kSteps);
}

INSTANTIATE_TEST_SUITE_P(OfTheClosure, CapturedHostReads,
                         ::testing::Range(size_t{0}, host_reads().size()),
                         [](const auto& info) { return host_reads()[info.param].what; });

}  // namespace
}  // namespace lockstep
