// Captured windows: the model is in host memory, and a graph keeps the work and runs it again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/saving/impl/averages.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "error_of.h"
#include "runtime/captured_runs.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

struct OwnRuntime {
  Runtime runtime = Runtime::solo();
};

struct Trained : OwnRuntime, testing::CapturedRun {
  explicit Trained(const TrainerOptions& options, bool graph,
                   const OptimizerSpec& optimizer = AdamW(1e-2),
                   HostActs acts = HostActs::one_window_late)
      : CapturedRun(runtime, runtime.communicator(), options, graph, optimizer, acts) {}
};

TEST(CapturedSteps, HaveTheBitsAndReportsOfTheHostAndOfALateHostAlsoWhereUpdatesAreSkipped) {
  constexpr int64_t steps = 150;
  const auto half_wire = Precision::O0().wire(at::kHalf).loss_scale(
      amp::LossScalerOptions().init_scale(256).growth_interval(20));
  for (const auto& options : {dynamic_half(), dynamic_half().precision(half_wire)}) {
    Trained prompt(options, false, AdamW(1e-2), HostActs::at_once);
    Trained plain(options, false);
    Trained captured(options, true);
    const auto inputs = [](int64_t step) { return batch(step); };
    const Course expected = run(prompt, steps, inputs);
    expect_same(run(plain, steps, inputs), expected);
    expect_same(run(captured, steps, inputs), expected);
    EXPECT_TRUE(expected.reports[50].skipped());
    EXPECT_GT(expected.reports.back().scale(), 256.0);
    EXPECT_EQ(plain.calls.apart, 0);
    EXPECT_EQ(captured.calls.apart, 3);
    EXPECT_EQ(captured.calls.captures, 1);
    EXPECT_EQ(captured.calls.launches, steps - 3);
  }
}

/// A running mean of the outputs.
struct WithMean : torch::nn::Module {
  WithMean()
      : linear(register_module("linear", torch::nn::Linear(4, 2))),
        mean(register_buffer("mean", at::zeros({2}))) {}
  torch::nn::Linear linear;
  at::Tensor mean;
};

TEST(CapturedSteps, MoveTheAveragesOfBuffersAtEachUpdate) {
  std::vector<at::Tensor> averages;
  for (const bool graph : {false, true}) {
    Runtime runtime = Runtime::solo();
    at::manual_seed(3);
    const auto model = std::make_shared<WithMean>();
    testing::Calls calls;
    Trainer trainer(std::make_unique<TrainerImpl>(
        runtime, model, AdamW(1e-2), dynamic_half().cuda_graph(graph), HostActs::one_window_late,
        [&] { return std::make_unique<testing::KeptWork>(calls); }, runtime.communicator()));
    for (int64_t step = 45; step < 60; ++step) {
      trainer.step(batch(step), [&](const Inputs& inputs) -> Loss {
        const at::Tensor out = model->linear->forward(inputs[0]).to(at::kFloat);
        model->mean.lerp_(out.detach().mean(0).to(model->mean.scalar_type()), 0.1);
        return (out - inputs[1]).square().mean() * inputs[2];
      });
    }
    EXPECT_EQ(calls.launches, graph ? 12 : 0);
    averages.push_back(all_averages(trainer.impl().storage).back().second.clone());
    EXPECT_FALSE(at::equal(averages.back(), model->mean.to(at::kFloat)));
  }
  EXPECT_TRUE(at::equal(averages[0], averages[1]));
}

TEST(CapturedSteps, CaptureEightShapesAndRunTheOthersDirectly) {
  constexpr int64_t shapes = 9, rounds = 5;
  Trained plain(dynamic_half(), false);
  Trained captured(dynamic_half(), true);
  const auto inputs = [](int64_t step) { return batch(step, 1 + step % shapes); };
  const Course expected = run(plain, shapes * rounds, inputs);
  expect_same(run(captured, shapes * rounds, inputs), expected);
  EXPECT_EQ(captured.trainer.impl().captured->captured(), 8);
  EXPECT_EQ(captured.calls.captures, 8);
  EXPECT_EQ(captured.calls.launches, 8 * (rounds - 3));
}

TEST(CapturedSteps, InputsThatAreNotDenseAreCapturedOnce) {
  Trained captured(dynamic_half(), true);
  for (int64_t step = 0; step < 6; ++step) {
    Inputs inputs = batch(step);
    inputs[0] = at::cat({inputs[0], inputs[0]}, 1).narrow(1, 0, 4);
    inputs[1] = inputs[1].narrow(0, 0, 1).expand({5, 2});
    captured.step(inputs);
  }
  EXPECT_EQ(captured.calls.captures, 1);
  EXPECT_EQ(captured.calls.launches, 3);
}

TEST(CapturedSteps, WaitForTheFirstUpdate) {
  const auto precision =
      Precision::O2().loss_scale(amp::LossScalerOptions().init_scale(256).growth_interval(20));
  Trained captured(TrainerOptions().precision(precision), true);
  Inputs bad = batch(0);
  bad[2].fill_(std::numeric_limits<float>::infinity());
  for (int step = 0; step < 6; ++step) {
    captured.step(bad);
  }
  EXPECT_EQ(captured.calls.captures, 0);
  for (int step = 1; step < 5; ++step) {
    captured.step(batch(step));
  }
  EXPECT_EQ(captured.calls.captures, 1);
}

TEST(CapturedSteps, ADiagnosedWindowRunsDirectly) {
  Trained captured(dynamic_half(), true);
  for (int64_t step = 0; step < 5; ++step) {
    captured.step(batch(step));
  }
  const int launches = captured.calls.launches;
  captured.trainer.impl().step->consensus().diagnose_next_overflow();
  captured.step(batch(5));  // says so to all ranks
  EXPECT_EQ(captured.calls.launches, launches + 1);
  EXPECT_TRUE(captured.step(batch(7)).skipped());
  EXPECT_EQ(captured.calls.launches, launches + 1);
  EXPECT_FALSE(captured.trainer.impl().step->diagnosis().text().empty());
  captured.step(batch(8));
  EXPECT_EQ(captured.calls.launches, launches + 2);
}

TEST(CapturedSteps, AStepThatCannotBeCapturedSaysWhyAndMovesNothing) {
  Trained captured(dynamic_half(), true);
  captured.calls.refuses = [] { return true; };
  for (int64_t step = 0; step < 3; ++step) {
    captured.step(batch(step));
  }
  const at::Tensor before = captured.masters();
  const std::string message = error_of([&] { captured.step(batch(3)); });
  EXPECT_THAT(message, HasSubstr("cuda_graph: the step cannot be captured: operation not permitted "
                                 "when stream is capturing; its closure may neither read"));
  EXPECT_TRUE(at::equal(captured.masters(), before));
  EXPECT_EQ(captured.step(batch(3)).update(), 4);
  EXPECT_FALSE(at::equal(captured.masters(), before));
}

TEST(CapturedSteps, OtherCallsAndOtherLossesAreRefused) {
  Trained captured(dynamic_half(), true);
  EXPECT_THAT(error_of([&] { captured.trainer.step([] { return Loss(at::ones({})); }); }),
              HasSubstr("only step(inputs, closure) can be called"));
  EXPECT_THAT(error_of([&] { captured.trainer.backward(at::ones({})); }),
              HasSubstr("only step(inputs, closure) can be called"));
  Trained sums(dynamic_half(), true);
  EXPECT_THAT(error_of([&] {
                for (int step = 0; step < 4; ++step) {
                  sums.trainer.step(batch(step), [&](const Inputs& from) {
                    return Loss::sum(sums.model->loss(from[0], from[1]), 5);
                  });
                }
              }),
              HasSubstr("cuda_graph: a Loss::sum is divided by a weight"));
}

TEST(CapturedSteps, AreRefusedWithAReason) {
  const auto refused = [](const TrainerOptions& options) {
    return error_of([&] { Trained(options, true); });
  };
  EXPECT_THAT(refused(TrainerOptions().accumulate(2)), HasSubstr("accumulate must be 1, is 2"));
  EXPECT_THAT(refused(TrainerOptions().uneven_data(true)), HasSubstr("with uneven_data the host"));
  EXPECT_THAT(refused(TrainerOptions().unused(UnusedParameters::detect)),
              HasSubstr("with UnusedParameters::detect the host"));
  EXPECT_THAT(refused(TrainerOptions().activation_budget("1 GiB")),
              HasSubstr("an activation_budget measures"));
  const TorchOptimizer plain_sgd([](std::vector<at::Tensor> masters) {
    return std::make_unique<torch::optim::SGD>(std::move(masters), torch::optim::SGDOptions(0.1));
  });
  EXPECT_THAT(error_of([&] { Trained(TrainerOptions(), true, plain_sgd); }),
              HasSubstr("decides on the host whether to update"));
  Runtime runtime = Runtime::solo();
  EXPECT_THAT(error_of([&] {
                Trainer(runtime, Trained::made(), SGD(0.1), TrainerOptions().cuda_graph(true));
              }),
              HasSubstr("cuda_graph needs a CUDA device, this rank computes on cpu"));
}

TEST(CapturedSteps, TakeTheirOwnGradientsToo) {
  std::vector<at::Tensor> ends;
  for (const bool disturbed : {false, true}) {
    Trained run(dynamic_half(), true);
    at::manual_seed(5);
    for (int64_t step = 0; step < 8; ++step) {
      if (disturbed) {
        run.model->second->weight.to(at::kFloat).square().sum().backward();
      }
      run.step(batch(step, 5, /*overflows=*/false));
    }
    EXPECT_GT(run.calls.launches, 0);
    ends.push_back(run.masters());
  }
  EXPECT_TRUE(at::equal(ends[0], ends[1]));
}

TEST(Trainer, StepTakesItsInputsAsArguments) {
  Runtime runtime = Runtime::solo();
  const auto weights_after = [&](bool as_arguments) {
    const auto model = Trained::made();
    Trainer trainer(runtime, model, SGD(0.1));
    const Inputs inputs = batch(0);
    if (as_arguments) {
      trainer.step(inputs,
                   [&](const Inputs& from) -> Loss { return model->loss(from[0], from[1]); });
    } else {
      trainer.step([&]() -> Loss { return model->loss(inputs[0], inputs[1]); });
    }
    return model->first->weight.detach().clone();
  };
  EXPECT_TRUE(at::equal(weights_after(true), weights_after(false)));
}

}  // namespace
}  // namespace lockstep
