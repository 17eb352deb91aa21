// The learning rate can be set in a run: by hand, by a function, on a plateau, and through the
// options of a torch::optim optimizer.
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include "snapshot_runs.h"
#include "trainer_runs.h"

namespace lockstep {
namespace {

using testing::error_of;
using testing::flat_masters;
using testing::half_precision;
using ::testing::HasSubstr;
using testing::Mlp;
using testing::OneWeight;
using testing::overflow_factor;
using testing::runtime;
using testing::scaled_loss;
using testing::SharedFolder;

/// Each gradient is 1, so that with SGD an update moves each weight by the learning rate.
struct Slope {
  explicit Slope(const OptimizerSpec& spec, const TrainerOptions& options = {})
      : model(std::make_shared<OneWeight>(testing::full({70}, 0.0))),
        trainer(runtime(), model, spec, options) {}

  StepReport step(bool overflows = false) {
    return trainer.step(
        [&]() -> Loss { return model->weight.sum() * (overflows ? overflow_factor : 1.0F); });
  }
  /// How far the next update moves.
  double move() {
    const double before = model->weight[0].item<double>();
    const auto report = step();
    const double moved = before - model->weight[0].item<double>();
    EXPECT_NEAR(report.learning_rate(), moved, 1e-6);
    return moved;
  }

  std::shared_ptr<OneWeight> model;
  Trainer trainer;
};

/// A torch::optim::SGD that its maker keeps.
struct Held {
  torch::optim::SGD* optimizer = nullptr;
  TorchOptimizer spec = TorchOptimizer([this](std::vector<at::Tensor> masters) {
    auto made = std::make_unique<torch::optim::SGD>(std::move(masters), 0.5);
    optimizer = made.get();
    return made;
  });
};

TEST(NoSilentResult, N09_ASetRateIsThatOfTheNextUpdate) {
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

TEST(NoSilentResult, N09_TheScheduleMultipliesASetRate) {
  Slope slope(SGD(1.0), TrainerOptions().schedule(StepDecay(2, 0.5)));
  EXPECT_FLOAT_EQ(slope.move(), 1.0);
  slope.trainer.set_learning_rate(0.25);
  EXPECT_FLOAT_EQ(slope.move(), 0.25);
  EXPECT_FLOAT_EQ(slope.move(), 0.125);
  EXPECT_EQ(slope.trainer.learning_rate(), 0.25);
}

TEST(NoSilentResult, N09_GroupsHaveRatesOfTheirOwn) {
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

TEST(NoSilentResult, N09_RatesThatCannotBeAreRefused) {
  Slope slope(SGD(0.5));
  const auto setting = [&](double rate, int group) {
    return error_of([&] { slope.trainer.set_learning_rate(rate, group); });
  };
  EXPECT_THAT(setting(-0.1, 0), HasSubstr("the rate is -0.1"));
  EXPECT_THAT(setting(std::nan(""), 0), HasSubstr("must be finite"));
  EXPECT_THAT(setting(0.1, 1), HasSubstr("there is no group 1 of the optimizer, only 0 to 0"));
  EXPECT_FLOAT_EQ(slope.move(), 0.5);
}

TEST(NoSilentResult, N09_RatesThatDifferBetweenRanksMoveNothingAndAreAnErrorOnEveryRank) {
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

TrainerOptions saved_in(const SharedFolder& folder) {
  return TrainerOptions().snapshots(
      SnapshotOptions().folder(folder.file("run")).asynchronous(false));
}

TEST(NoSilentResult, N09_SnapshotsHaveTheRates) {
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

TEST(NoSilentResult, N09_AProgramThatConfiguresAnotherRateKeepsItsOwnAndSaysSo) {
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

TEST(NoSilentResult, N09_AFunctionIsAScheduleThatASkipDoesNotAdvance) {
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

TEST(NoSilentResult, N09_AFunctionThatFailsOnOneRankIsAnErrorOnEveryRank) {
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

TEST(NoSilentResult, N09_AFunctionThatDiffersBetweenRanksIsAnErrorOnEveryRank) {
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

/// A metric that improves, stalls and gets worse.
double metric_of(int64_t epoch) {
  const double noise = testing::drawn_on_host({1}, 77 + epoch).item<double>();
  return 1.0 / static_cast<double>(1 + epoch % 9) + 0.05 * noise;
}

TEST(NoSilentResult, N09_PlateausLowerTheRateAsInLibTorch) {
  using namespace torch::optim;
  using Plateau = ReduceLROnPlateauScheduler;
  for (const bool greater : {false, true}) {
    for (const bool absolute : {false, true}) {
      for (const int cooldown : {0, 2}) {
        const at::Tensor weight = at::zeros({1}).requires_grad_(true);
        torch::optim::SGD theirs({weight}, 0.5);
        Plateau scheduler(theirs, greater ? Plateau::max : Plateau::min, /*factor=*/0.25F,
                          /*patience=*/1, /*threshold=*/0.01,
                          absolute ? Plateau::abs : Plateau::rel, cooldown,
                          /*min_lr=*/{1e-3F});
        Slope slope(lockstep::SGD(0.5),
                    TrainerOptions().reduce_on_plateau(
                        ReduceOnPlateau()
                            .factor(0.25)
                            .patience(1)
                            .threshold(0.01)
                            .mode(greater ? ReduceOnPlateau::Mode::max : ReduceOnPlateau::Mode::min)
                            .threshold_mode(absolute ? ReduceOnPlateau::Threshold::abs
                                                     : ReduceOnPlateau::Threshold::rel)
                            .cooldown(cooldown)
                            .min_lr(1e-3F)));
        for (int64_t epoch = 0; epoch < 40; ++epoch) {
          const double before = theirs.param_groups()[0].options().get_lr();
          scheduler.step(static_cast<float>(metric_of(epoch)));
          const double after = theirs.param_groups()[0].options().get_lr();
          EXPECT_EQ(slope.trainer.reduce_on_plateau(static_cast<float>(metric_of(epoch))),
                    after < before)
              << epoch;
          EXPECT_NEAR(slope.trainer.learning_rate(), after, 1e-7 * after) << epoch;
        }
        EXPECT_LT(slope.trainer.learning_rate(), 0.05);
      }
    }
  }
}

TEST(NoSilentResult, N09_APlateauGoesOnWhereTheSnapshotWas) {
  const auto rule = ReduceOnPlateau().factor(0.5).patience(2);
  const SharedFolder folder;
  std::vector<double> expected;
  {
    Slope slope(SGD(0.5), saved_in(folder).reduce_on_plateau(rule));
    for (int i = 0; i < 12; ++i) {
      slope.trainer.reduce_on_plateau(1.0);
      slope.step();
      expected.push_back(slope.trainer.learning_rate());
      if (i == 4) {
        slope.trainer.save();
      }
    }
  }
  Slope slope(SGD(0.5), saved_in(folder).reduce_on_plateau(rule));
  slope.trainer.resume();
  for (size_t i = 5; i < 12; ++i) {
    slope.trainer.reduce_on_plateau(1.0);
    EXPECT_FLOAT_EQ(slope.move(), expected[i]) << i;
  }
  EXPECT_EQ(expected.back(), 0.0625);
  Slope without(SGD(0.5), saved_in(folder));
  EXPECT_TRUE(without.trainer.resume().resumed);
  EXPECT_THAT(error_of([&] { without.trainer.reduce_on_plateau(1.0); }),
              HasSubstr("TrainerOptions().reduce_on_plateau(ReduceOnPlateau())"));
}

TEST(NoSilentResult, N09_ImpossiblePlateausAreRefused) {
  const auto made = [](const ReduceOnPlateau& rule) {
    return error_of([&] { Slope(SGD(0.5), TrainerOptions().reduce_on_plateau(rule)); });
  };
  EXPECT_THAT(made(ReduceOnPlateau().factor(1.0)), HasSubstr("ReduceOnPlateau.factor must be > 0"));
  EXPECT_THAT(made(ReduceOnPlateau().patience(-1)), HasSubstr("ReduceOnPlateau.patience"));
  EXPECT_THAT(made(ReduceOnPlateau().threshold(-1)), HasSubstr("ReduceOnPlateau.threshold"));
  EXPECT_THAT(made(ReduceOnPlateau().cooldown(-1)), HasSubstr("ReduceOnPlateau.cooldown"));
  EXPECT_THAT(made(ReduceOnPlateau().min_lr(-1)), HasSubstr("ReduceOnPlateau.min_lr"));
  EXPECT_THAT(made(ReduceOnPlateau().eps(-1)), HasSubstr("ReduceOnPlateau.eps"));
}

TEST(NoSilentResult, N09_EditedOptionsOfATorchOptimizerTakeEffect) {
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

TEST(NoSilentResult, N09_LibTorchsOwnSchedulersWorkOnATorchOptimizer) {
  Held held;
  Slope slope(held.spec);
  torch::optim::StepLR scheduler(*held.optimizer, /*step_size=*/2, /*gamma=*/0.5);
  for (const double expected : {0.5, 0.5, 0.25, 0.25, 0.125}) {
    EXPECT_FLOAT_EQ(slope.move(), expected);
    scheduler.step();
  }
}

TEST(NoSilentResult, N09_OptionsEditedOnOneRankAreAnErrorOnEveryRank) {
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
