// Recorded windows: the model is in host memory, and a record keeps the work and runs it again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "error_of.h"
#include "graphed_runs.h"

namespace lockstep {
namespace {

using testing::batch;
using testing::Course;
using testing::dynamic_half;
using testing::error_of;
using testing::expect_same;
using ::testing::HasSubstr;
using testing::Inputs;
using testing::run;

struct OwnRuntime {
  Runtime runtime = Runtime::solo();
};

struct Trained : OwnRuntime, testing::GraphedRun {
  explicit Trained(const TrainerOptions& options, bool graph,
                   const OptimizerSpec& optimizer = AdamW(1e-2))
      : GraphedRun(runtime, runtime.communicator(), options, graph, optimizer) {}
};

TEST(GraphedSteps, HaveTheBitsAndReportsOfPlainOnesAlsoWhereUpdatesAreSkipped) {
  constexpr int64_t steps = 150;
  const auto fed_back =
      Precision::O0()
          .wire(at::kHalf)
          .loss_scale(amp::LossScalerOptions().init_scale(256).growth_interval(20))
          .error_feedback();
  for (const auto& options : {dynamic_half(), dynamic_half().precision(fed_back)}) {
    Trained plain(options, false);
    Trained graphed(options, true);
    const auto inputs = [](int64_t step) { return batch(step); };
    const Course expected = run(plain, steps, inputs);
    expect_same(run(graphed, steps, inputs), expected);
    EXPECT_TRUE(expected.reports[50].skipped());
    EXPECT_GT(expected.reports.back().scale(), 256.0);
    EXPECT_EQ(plain.calls.apart, 0);
    EXPECT_EQ(graphed.calls.apart, 3);
    EXPECT_EQ(graphed.calls.captures, 1);
    EXPECT_EQ(graphed.calls.replays, steps - 3);
  }
}

TEST(GraphedSteps, RecordEightShapesAndRunTheRestAsTheyCome) {
  constexpr int64_t shapes = 9, rounds = 5;
  Trained plain(dynamic_half(), false);
  Trained graphed(dynamic_half(), true);
  const auto inputs = [](int64_t step) { return batch(step, 1 + step % shapes); };
  const Course expected = run(plain, shapes * rounds, inputs);
  expect_same(run(graphed, shapes * rounds, inputs), expected);
  EXPECT_EQ(graphed.training.graphed->recorded(), 8);
  EXPECT_EQ(graphed.calls.captures, 8);
  EXPECT_EQ(graphed.calls.replays, 8 * (rounds - 3));
}

TEST(GraphedSteps, InputsThatAreNotDenseAreRecordedOnce) {
  Trained graphed(dynamic_half(), true);
  for (int64_t step = 0; step < 6; ++step) {
    Inputs inputs = batch(step);
    inputs[0] = at::cat({inputs[0], inputs[0]}, 1).narrow(1, 0, 4);
    inputs[1] = inputs[1].narrow(0, 0, 1).expand({5, 2});
    graphed.step(inputs);
  }
  EXPECT_EQ(graphed.calls.captures, 1);
  EXPECT_EQ(graphed.calls.replays, 3);
}

TEST(GraphedSteps, WaitForTheFirstUpdate) {
  const auto precision =
      Precision::O2().loss_scale(amp::LossScalerOptions().init_scale(256).growth_interval(20));
  Trained graphed(TrainerOptions().precision(precision), true);
  Inputs bad = batch(0);
  bad[2].fill_(std::numeric_limits<float>::infinity());
  for (int step = 0; step < 6; ++step) {
    graphed.step(bad);
  }
  EXPECT_EQ(graphed.calls.captures, 0);
  for (int step = 1; step < 5; ++step) {
    graphed.step(batch(step));
  }
  EXPECT_EQ(graphed.calls.captures, 1);
}

TEST(GraphedSteps, ADiagnosedWindowRunsAsItComes) {
  Trained graphed(dynamic_half(), true);
  for (int64_t step = 0; step < 5; ++step) {
    graphed.step(batch(step));
  }
  const int replays = graphed.calls.replays;
  graphed.training.steps->diagnose_next_overflow();
  graphed.step(batch(5));  // says so to all ranks
  EXPECT_EQ(graphed.calls.replays, replays + 1);
  EXPECT_TRUE(graphed.step(batch(7)).skipped());
  EXPECT_EQ(graphed.calls.replays, replays + 1);
  EXPECT_FALSE(graphed.training.steps->diagnosis().text().empty());
  graphed.step(batch(8));
  EXPECT_EQ(graphed.calls.replays, replays + 2);
}

TEST(GraphedSteps, AStepThatCannotBeRecordedSaysWhyAndMovesNothing) {
  Trained graphed(dynamic_half(), true);
  graphed.calls.refuses = [] { return true; };
  for (int64_t step = 0; step < 3; ++step) {
    graphed.step(batch(step));
  }
  const at::Tensor before = graphed.masters();
  const std::string message = error_of([&] { graphed.step(batch(3)); });
  EXPECT_THAT(message, HasSubstr("cuda_graph: the step cannot be captured: operation not permitted "
                                 "when stream is capturing; its closure may neither read"));
  EXPECT_TRUE(at::equal(graphed.masters(), before));
  EXPECT_EQ(graphed.step(batch(3)).update(), 4);
  EXPECT_FALSE(at::equal(graphed.masters(), before));
}

TEST(GraphedSteps, OtherCallsAndOtherLossesAreRefused) {
  Trained graphed(dynamic_half(), true);
  EXPECT_THAT(error_of([&] { graphed.training.step([] { return Loss(at::ones({})); }); }),
              HasSubstr("only step(inputs, closure) can be called"));
  EXPECT_THAT(error_of([&] { graphed.training.backward(at::ones({})); }),
              HasSubstr("only step(inputs, closure) can be called"));
  Trained sums(dynamic_half(), true);
  EXPECT_THAT(error_of([&] {
                for (int step = 0; step < 4; ++step) {
                  sums.training.step(batch(step), [&](const Inputs& from) {
                    return Loss::sum(sums.model->loss(from[0], from[1]), 5);
                  });
                }
              }),
              HasSubstr("cuda_graph: a Loss::sum is divided by a weight"));
}

TEST(GraphedSteps, AreRefusedWithAReason) {
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
