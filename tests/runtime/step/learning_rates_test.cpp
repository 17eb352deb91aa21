// The learning rate can be set in a run: by hand, by a function, and through the options of a
// torch::optim optimizer.
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include <lockstep/runtime/learning_rate_finder.h>

#include "error_of.h"
#include "slope.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// A torch::optim::SGD that its maker keeps.
struct Held {
  torch::optim::SGD* optimizer = nullptr;
  TorchOptimizer spec = TorchOptimizer([this](std::vector<at::Tensor> masters) {
    auto made = std::make_unique<torch::optim::SGD>(std::move(masters), 0.5);
    optimizer = made.get();
    return made;
  });
};

TEST(LearningRates, ASetRateIsThatOfTheNextUpdate) {
  Held held;
  for (const auto& spec : {SGD(0.5).clone(), held.spec.clone()}) {
    Slope slope(*spec);
    EXPECT_FLOAT_EQ(slope.move(), 0.5);
    slope.trainer.set_learning_rate(0.125);
    EXPECT_EQ(slope.trainer.learning_rate(), 0.125);
    EXPECT_FLOAT_EQ(slope.move(), 0.125);
    slope.trainer.set_learning_rate(0.0);
    EXPECT_EQ(slope.move(), 0.0);
    slope.trainer.set_learning_rate(0.25, 0);
    EXPECT_FLOAT_EQ(slope.move(), 0.25);
  }
}

TEST(LearningRates, TheScheduleMultipliesASetRate) {
  Slope slope(SGD(1.0), TrainerOptions().schedule(StepDecay(2, 0.5)));
  EXPECT_FLOAT_EQ(slope.move(), 1.0);
  slope.trainer.set_learning_rate(0.25);
  EXPECT_FLOAT_EQ(slope.move(), 0.25);
  EXPECT_FLOAT_EQ(slope.move(), 0.125);
  EXPECT_EQ(slope.trainer.learning_rate(), 0.25);
}

TEST(LearningRates, GroupsHaveRatesOfTheirOwn) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(
      runtime(), model,
      SGD(1.0).group([](const ModelTensor& one) { return one.name == "second.bias"; }, SGD(0.5)));
  EXPECT_EQ(trainer.learning_rate(1), 0.5);
  trainer.set_learning_rate(0.125, 1);
  EXPECT_EQ(trainer.learning_rate(0), 1.0);
  EXPECT_EQ(trainer.learning_rate(1), 0.125);
  const at::Tensor biases[] = {model->first->bias.detach().clone(),
                               model->second->bias.detach().clone()};
  trainer.step([&]() -> Loss {
    return model->first->bias.sum() + model->second->bias.sum() + 0 * model->first->weight.sum() +
           0 * model->second->weight.sum();
  });
  EXPECT_TRUE(at::allclose(biases[0] - model->first->bias, testing::full({1}, 1.0)));
  EXPECT_TRUE(at::allclose(biases[1] - model->second->bias, testing::full({1}, 0.125)));
}

TEST(LearningRates, RatesThatCannotBeAreRefused) {
  Slope slope(SGD(0.5));
  const auto setting = [&](double rate, int group) {
    return error_of([&] { slope.trainer.set_learning_rate(rate, group); });
  };
  EXPECT_THAT(setting(-0.1, 0), HasSubstr("the rate is -0.1"));
  EXPECT_THAT(setting(std::nan(""), 0), HasSubstr("must be finite"));
  EXPECT_THAT(setting(0.1, 1), HasSubstr("there is no group 1 of the optimizer, only 0 to 0"));
  EXPECT_FLOAT_EQ(slope.move(), 0.5);
}

TEST(LearningRates, RatesThatDifferBetweenRanksMoveNothingAndAreAnErrorOnEveryRank) {
  if (runtime().size() == 1) {
    return;
  }
  Held held;
  for (const auto& spec : {SGD(0.5).clone(), held.spec.clone()}) {
    Slope slope(*spec);
    slope.step();
    const at::Tensor before = flat_masters(slope.trainer);
    if (runtime().is_main()) {
      slope.trainer.set_learning_rate(0.25);
    }
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(error_of([&] { slope.step(); }),
                  AllOf(HasSubstr("the learning rate"),
                        HasSubstr("differs between ranks: rank 0 has 0.25 "),
                        HasSubstr("rank 1 has 0.5 "), HasSubstr("Pass the same on every rank")));
    }
    EXPECT_TRUE(at::equal(flat_masters(slope.trainer), before));
    slope.trainer.set_learning_rate(0.25);
    EXPECT_FLOAT_EQ(slope.move(), 0.25);
    EXPECT_TRUE(slope.trainer.replicas_agree());
  }
}

TEST(LearningRates, SnapshotsHaveTheRates) {
  Held held;
  for (const auto& spec : {SGD(0.5).clone(), held.spec.clone()}) {
    const SharedFolder folder;
    {
      Slope slope(*spec, saved_in(folder));
      slope.step();
      slope.trainer.set_learning_rate(0.125);
      slope.trainer.save();
    }
    Slope slope(*spec, saved_in(folder));
    EXPECT_TRUE(slope.trainer.resume().notes.empty());
    EXPECT_EQ(slope.trainer.learning_rate(), 0.125);
    EXPECT_FLOAT_EQ(slope.move(), 0.125);
  }
}

TEST(LearningRates, AProgramThatConfiguresAnotherRateKeepsItsOwnAndSaysSo) {
  const SharedFolder folder;
  {
    Slope slope(SGD(0.5), saved_in(folder));
    slope.step();
    slope.trainer.set_learning_rate(0.125);
    slope.trainer.save();
  }
  Slope slope(SGD(0.25), saved_in(folder));
  EXPECT_THAT(slope.trainer.resume().notes,
              Contains(HasSubstr("the learning rate of group 0 was 0.125, is now 0.25")));
  EXPECT_FLOAT_EQ(slope.move(), 0.25);
}

TEST(LearningRates, AFunctionIsAScheduleThatASkipDoesNotAdvance) {
  at::Tensor masters[2];
  const std::vector<int64_t> milestones = {2, 3, 7};
  std::vector<int64_t> asked;
  const ScheduleFunction function([&](int64_t updates) {
    asked.push_back(updates);
    return MultiStepDecay(milestones, 0.5).factor(updates);
  });
  for (const bool by_function : {false, true}) {
    at::manual_seed(2);
    const auto model = std::make_shared<Mlp>();
    Trainer trainer(runtime(), model, AdamW(1e-2),
                    TrainerOptions()
                        .precision(half_precision())
                        .accumulate(2)
                        .schedule(by_function ? Schedule(function)
                                              : Schedule(MultiStepDecay(milestones, 0.5))));
    for (int64_t step = 0; step < 24; ++step) {
      const bool planted = step == 2 || step == 13;
      const auto report =
          trainer.step([&] { return scaled_loss(*model, step, planted ? overflow_factor : 1.0F); });
      const float expected =
          MultiStepDecay(milestones, 0.5)
              .factor(report.closes_update() && !report.skipped() ? report.update() - 1
                                                                  : report.update());
      EXPECT_EQ(report.learning_rate(), 1e-2 * expected) << step;
    }
    EXPECT_EQ(trainer.updates(), 10);
    EXPECT_TRUE(trainer.replicas_agree());
    masters[by_function ? 1 : 0] = flat_masters(trainer);
  }
  EXPECT_TRUE(at::equal(masters[0], masters[1]));
  // On a device it is not known whether the update before the last was skipped.
  EXPECT_EQ(*std::max_element(asked.begin(), asked.end()), testing::device().is_cuda() ? 10 : 9);
}

TEST(LearningRates, AFunctionThatFailsOnOneRankIsAnErrorOnEveryRank) {
  const int last = runtime().size() - 1;
  for (const bool throws : {false, true}) {
    bool fails = true;
    Slope slope(SGD(0.5), TrainerOptions().schedule(ScheduleFunction([&](int64_t updates) {
      if (updates == 1 && fails && runtime().rank() == last) {
        TORCH_CHECK(!throws, "no more rates");
        return -1.0;
      }
      return 1.0;
    })));
    slope.step();
    const at::Tensor before = flat_masters(slope.trainer);
    std::string said;
    try {
      slope.step();
      ADD_FAILURE() << "it went on";
    } catch (const std::exception& error) {
      said = error.what();
    }
    EXPECT_THAT(said, HasSubstr(throws ? "no more rates" : "the factor after 1 updates is -1"));
    EXPECT_TRUE(at::equal(flat_masters(slope.trainer), before));
    fails = false;
    EXPECT_FLOAT_EQ(slope.move(), 0.5);
    EXPECT_TRUE(slope.trainer.replicas_agree());
  }
}

TEST(LearningRates, AFunctionThatDiffersBetweenRanksIsAnErrorOnEveryRank) {
  if (runtime().size() == 1) {
    return;
  }
  Slope slope(SGD(0.5), TrainerOptions().schedule(ScheduleFunction(
                            [](int64_t updates) { return updates < 2 ? 1.0 : runtime().rank(); })));
  slope.step();
  slope.step();
  const at::Tensor before = flat_masters(slope.trainer);
  EXPECT_THAT(error_of([&] { slope.step(); }),
              AllOf(HasSubstr("ScheduleFunction"), HasSubstr("differs between ranks")));
  EXPECT_TRUE(at::equal(flat_masters(slope.trainer), before));
}

TEST(LearningRates, EditedOptionsOfATorchOptimizerTakeEffect) {
  Held held;
  Slope slope(held.spec, TrainerOptions().schedule(StepDecay(3, 0.5)));
  auto& options =
      static_cast<torch::optim::SGDOptions&>(held.optimizer->param_groups()[0].options());
  EXPECT_FLOAT_EQ(slope.move(), 0.5);
  options.lr(0.25);
  EXPECT_FLOAT_EQ(slope.move(), 0.25);
  EXPECT_FLOAT_EQ(slope.move(), 0.25);
  EXPECT_FLOAT_EQ(slope.move(), 0.125);  // the schedule goes on from there
  options.lr(options.lr() / 4);
  EXPECT_FLOAT_EQ(slope.move(), 0.125 / 4);
  EXPECT_FLOAT_EQ(slope.trainer.learning_rate(), 0.25 / 4);
  options.weight_decay(1.0);
  const double before = slope.model->weight[0].item<double>();
  slope.step();
  EXPECT_FLOAT_EQ(before - slope.model->weight[0].item<double>(), 0.125 / 4 * (1.0 + before));
}

/// A run whose TorchOptimizer is edited between steps.
struct EditedRun {
  explicit EditedRun(TrainerOptions options = {}) : slope(held.spec, options) { slope.step(); }
  double read() const { return held.optimizer->param_groups()[0].options().get_lr(); }
  void halve() const { held.optimizer->param_groups()[0].options().set_lr(read() / 2); }
  Held held;
  Slope slope;
};

TEST(LearningRates, AnEditedRateIsTheTrainersRateAtOnceAndTheOtherWayRound) {
  EditedRun run(TrainerOptions().reduce_on_plateau(ReduceOnPlateau().patience(0).factor(0.5)));
  run.halve();
  EXPECT_EQ(run.slope.trainer.learning_rate(), 0.25);
  run.slope.trainer.set_learning_rate(0.125);  // the later of the two counts
  EXPECT_EQ(run.read(), 0.125);
  EXPECT_FLOAT_EQ(run.slope.move(), 0.125);
  run.slope.trainer.set_learning_rate(0.5);
  run.halve();
  EXPECT_FLOAT_EQ(run.slope.move(), 0.25);
  run.halve();
  run.slope.trainer.reduce_on_plateau(1.0);
  run.slope.step();
  EXPECT_TRUE(run.slope.trainer.reduce_on_plateau(1.0));
  EXPECT_EQ(run.read(), 0.0625);
  EXPECT_FLOAT_EQ(run.slope.move(), 0.0625);
}

TEST(LearningRates, AnEditedRateIsInTheSnapshotAndShownAfterAResume) {
  const SharedFolder folder;
  {
    EditedRun run(saved_in(folder));
    run.halve();
    run.slope.trainer.save();
    EXPECT_FLOAT_EQ(run.slope.move(), 0.25);
  }
  Held held;
  Slope resumed(held.spec, saved_in(folder));
  resumed.trainer.resume();
  EXPECT_EQ(resumed.trainer.learning_rate(), 0.25);
  EXPECT_EQ(held.optimizer->param_groups()[0].options().get_lr(), 0.25);
  EXPECT_FLOAT_EQ(resumed.move(), 0.25);
}

TEST(LearningRates, ARateThatIsEditedBetweenAResumeAndAnUpdateHasTheSchedulesFactor) {
  const SharedFolder folder;
  const auto options = saved_in(folder).schedule(StepDecay(/*every=*/1, /*gamma=*/0.5));
  {
    EditedRun run(options);                   // has made one update
    EXPECT_FLOAT_EQ(run.slope.move(), 0.25);  // half of 0.5
    run.slope.trainer.save();
  }
  Held held;
  Slope resumed(held.spec, options);
  resumed.trainer.resume();
  auto& shown = held.optimizer->param_groups()[0].options();
  EXPECT_EQ(shown.get_lr(), 0.25);
  shown.set_lr(0.125);  // half of it
  EXPECT_EQ(resumed.trainer.learning_rate(), 0.25);
  EXPECT_FLOAT_EQ(resumed.move(), 0.0625);  // a quarter of that
}

TEST(LearningRates, ASearchForARateLeavesAnEditedRate) {
  EditedRun run;
  run.halve();
  auto loader = runtime().loader(Numbered{64}, LoaderOptions().batch_size(1));
  static_cast<void>(find_learning_rate(
      run.slope.trainer, loader, [&](auto&) { return run.slope.step(); },
      LearningRateSearch().updates(4).lowest(1e-3).highest(3).skip_first(0)));
  EXPECT_EQ(run.slope.trainer.learning_rate(), 0.25);
  EXPECT_EQ(run.read(), 0.25);
  EXPECT_FLOAT_EQ(run.slope.move(), 0.25);
}

TEST(LearningRates, LibTorchsOwnSchedulersWorkOnATorchOptimizer) {
  Held held;
  Slope slope(held.spec);
  torch::optim::SGD alone({at::zeros({1}).requires_grad_(true)}, 0.5);
  torch::optim::StepLR scheduler(*held.optimizer, /*step_size=*/2, /*gamma=*/0.5);
  torch::optim::StepLR expected(alone, /*step_size=*/2, /*gamma=*/0.5);
  for (int epoch = 0; epoch < 8; ++epoch) {
    EXPECT_FLOAT_EQ(slope.move(), alone.param_groups()[0].options().get_lr()) << epoch;
    scheduler.step();
    expected.step();
  }
  EXPECT_LT(slope.trainer.learning_rate(), 0.2);
}

TEST(LearningRates, OptionsEditedOnOneRankAreAnErrorOnEveryRank) {
  if (runtime().size() == 1) {
    return;
  }
  Held held;
  Slope slope(held.spec);
  if (runtime().rank() == 1) {
    held.optimizer->param_groups()[0].options().set_lr(0.25);
  }
  EXPECT_THAT(error_of([&] { slope.step(); }), HasSubstr("rank 1 has 0.25 "));
}

}  // namespace
}  // namespace lockstep
