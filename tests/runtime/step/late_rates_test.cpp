// Learning rates where the host acts a window late, as on a device, and in captured windows: here
// with the model in host memory.
#include "error_of.h"
#include "runtime/across_ranks.h"
#include "runtime/captured_runs.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

/// Falls, but not by a formula that the library has.
double wave(int64_t updates) {
  return 1.0 / (1.0 + 0.1 * static_cast<double>(updates)) + 0.01 * static_cast<double>(updates % 3);
}

struct Course {
  std::vector<at::Tensor> masters;
  std::vector<StepReport> reports;
};

/// Sets rates in between; some windows overflow.
Course course(const TrainerOptions& options, HostActs acts, bool graph) {
  CapturedRun::made();
  const auto model = CapturedRun::made();
  testing::Calls calls;
  Runtime solo = Runtime::solo();
  const bool together = !graph;
  Runtime& world = together ? runtime() : solo;
  Trainer trainer(std::make_unique<TrainerImpl>(
      world, model, AdamW(1e-2).no_decay_on_norms_and_biases(),
      TrainerOptions(options).cuda_graph(graph), acts,
      [&] { return std::make_unique<testing::KeptWork>(calls); }, world.communicator()));
  Course result;
  for (int64_t step = 0; step < 130; ++step) {
    if (step == 9 || step == 51) {  // after an overflow
      trainer.impl().storage.updater().learning_rates().set(step == 9 ? 2e-2 : 5e-3);
    }
    if (step == 20) {
      trainer.impl().storage.updater().learning_rates().set(1e-3, 1);
    }
    result.reports.push_back(
        trainer.step(batch(step), [&](const std::vector<at::Tensor>& from) -> Loss {
          return model->loss(from[0], from[1]) * from[2];
        }));
    result.masters.push_back(testing::flat(
        trainer.impl().storage.named(trainer.impl().storage.arena().whole_masters())));
  }
  EXPECT_EQ(calls.captures, graph ? 1 : 0);
  return result;
}

void expect_same(const Course& found, const Course& expected) {
  for (size_t step = 0; step < expected.masters.size(); ++step) {
    ASSERT_TRUE(at::equal(found.masters[step], expected.masters[step])) << step;
    EXPECT_EQ(found.reports[step].learning_rate(), expected.reports[step].learning_rate()) << step;
    EXPECT_EQ(found.reports[step].skipped(), expected.reports[step].skipped()) << step;
  }
  EXPECT_TRUE(expected.reports[50].skipped());
}

TEST(LateRates, ALateHostMakesUpdatesWithTheRatesOfAPromptOne) {
  for (const Schedule& schedule :
       {Schedule(WarmupStableDecay(5, 40, 90, 0.1)), Schedule(ScheduleFunction(wave))}) {
    const auto options = dynamic_half().schedule(schedule);
    expect_same(course(options, HostActs::one_window_late, false),
                course(options, HostActs::at_once, false));
  }
}

TEST(LateRates, CapturedWindowsSeeRatesThatChangeAfterTheCapture) {
  if (runtime().size() > 1) {
    return;
  }
  const auto options = dynamic_half().schedule(ScheduleFunction(wave));
  expect_same(course(options, HostActs::one_window_late, true),
              course(options, HostActs::at_once, false));
}

TEST(LateRates, ALateHostHearsOfRatesThatDifferAStepLaterOnEveryRank) {
  if (runtime().size() == 1) {
    return;
  }
  const auto model = CapturedRun::made();
  Trainer trainer(std::make_unique<TrainerImpl>(runtime(), model, SGD(0.5), TrainerOptions(),
                                                HostActs::one_window_late));
  const auto step = [&] {
    trainer.step([&]() -> Loss { return model->loss(batch(0)[0], batch(0)[1]); });
  };
  step();
  if (runtime().rank() == 1) {
    trainer.impl().storage.updater().learning_rates().set(0.25);
  }
  step();
  trainer.impl().storage.updater().learning_rates().set(0.25);  // too late
  EXPECT_THAT(error_of(step),
              AllOf(HasSubstr("the learning rate of the last update, which was made"),
                    HasSubstr("rank 0 has 0.5 "), HasSubstr("rank 1 has 0.25 ")));
}

TEST(LateRates, AFunctionThatFailsBeforeACapturedWindowIsAnError) {
  if (runtime().size() > 1) {
    return;
  }
  Runtime solo = Runtime::solo();
  CapturedRun run(solo, solo.communicator(),
                  dynamic_half().schedule(
                      ScheduleFunction([](int64_t updates) { return updates < 9 ? 1.0 : -1.0; })),
                  /*graph=*/true);
  for (int64_t k = 0; k < 2; ++k) {
    int64_t made = 0;
    const std::string said = error_of([&] {
      for (; made < 30; ++made) {
        run.step(batch(0));
      }
    });
    EXPECT_THAT(said, HasSubstr("ScheduleFunction: the factor after 9 updates is -1"));
    EXPECT_EQ(made, k == 0 ? 9 : 0);
  }
}

}  // namespace
}  // namespace lockstep
