// Recorded windows: the model is in host memory, and a record keeps the work and runs it again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/training.h>
#include <torch/optim/sgd.h>

#include <limits>

#include "error_of.h"
#include "flat_tensors.h"
#include "models.h"

namespace lockstep {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::Mlp;
using Inputs = std::vector<at::Tensor>;

struct Calls {
  int apart = 0, captures = 0, replays = 0;
  bool refuses = false;
};

class KeptWork final : public StepGraph {
 public:
  explicit KeptWork(Calls& calls) : calls_(calls) {}
  void run_apart(const std::function<void()>& work) override {
    ++calls_.apart;
    work();
  }
  void capture(const std::function<void()>& work) override {
    ++calls_.captures;
    TORCH_CHECK(!calls_.refuses, "operation not permitted when stream is capturing");
    work_ = work;
  }
  void replay() override {
    ++calls_.replays;
    work_();
  }

 private:
  Calls& calls_;
  std::function<void()> work_;
};

TrainerOptions dynamic_half() {
  return TrainerOptions()
      .precision(
          Precision::O2().loss_scale(amp::LossScalerOptions().init_scale(256).growth_interval(20)))
      .clip_grad_norm(0.5)
      .ema(0.9)
      .schedule(WarmupCosine(5, 100));
}

struct Trained {
  explicit Trained(TrainerOptions options, bool graph, const OptimizerSpec& optimizer = AdamW(1e-2))
      : model(made()),
        training(runtime, model, optimizer, options.cuda_graph(graph), HostActs::one_window_late,
                 [this] { return std::make_unique<KeptWork>(calls); }) {}

  static std::shared_ptr<Mlp> made() {
    at::manual_seed(11);
    return std::make_shared<Mlp>();
  }
  StepReport step(const Inputs& inputs) {
    return training.step(inputs, [model = model](const Inputs& from) -> Loss {
      return model->loss(at::dropout(from[0], 0.2, true), from[1]) * from[2];
    });
  }
  at::Tensor masters() const {
    return testing::flat(training.named(training.arena->whole_masters()));
  }

  Runtime runtime = Runtime::solo();
  Calls calls;
  std::shared_ptr<Mlp> model;
  Training training;
};

bool planted_at(int64_t step) {
  return step == 7 || step == 50 || step == 51 || step == 120;
}

Inputs batch(int64_t step, int64_t rows = 5) {
  const auto drawn = [](at::IntArrayRef sizes, int64_t seed) {
    return at::randn(sizes, at::detail::createCPUGenerator(static_cast<uint64_t>(seed)));
  };
  const float factor = planted_at(step) ? std::numeric_limits<float>::infinity() : 1.0F;
  return {drawn({rows, 4}, step), drawn({rows, 2}, 1'000'000 + step), at::full({}, factor)};
}

/// Masters after each step, and the reports.
struct Course {
  std::vector<at::Tensor> masters;
  std::vector<StepReport> reports;
};

Course run(Trained& trained, int64_t steps, const std::function<Inputs(int64_t)>& inputs) {
  Course course;
  at::manual_seed(5);
  for (int64_t step = 0; step < steps; ++step) {
    course.reports.push_back(trained.step(inputs(step)));
    course.masters.push_back(trained.masters());
  }
  return course;
}

void expect_same(const Course& found, const Course& expected) {
  for (size_t step = 0; step < expected.masters.size(); ++step) {
    ASSERT_TRUE(at::equal(found.masters[step], expected.masters[step])) << step;
    const StepReport& one = found.reports[step];
    const StepReport& other = expected.reports[step];
    EXPECT_EQ(one.closes_update(), other.closes_update()) << step;
    EXPECT_EQ(one.micro_batch(), other.micro_batch()) << step;
    EXPECT_EQ(one.update(), other.update()) << step;
    EXPECT_EQ(one.skipped(), other.skipped()) << step;
    EXPECT_EQ(one.scale(), other.scale()) << step;
    EXPECT_EQ(one.learning_rate(), other.learning_rate()) << step;
    EXPECT_EQ(c10::str(one.loss()), c10::str(other.loss())) << step;
    EXPECT_EQ(c10::str(one.grad_norm()), c10::str(other.grad_norm())) << step;
  }
}

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
  graphed.calls.refuses = true;
  for (int64_t step = 0; step < 3; ++step) {
    graphed.step(batch(step));
  }
  const at::Tensor before = graphed.masters();
  const std::string message = error_of([&] { graphed.step(batch(3)); });
  EXPECT_THAT(message, HasSubstr("cuda_graph: the step cannot be recorded: operation not permitted "
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
