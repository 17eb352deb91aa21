// Several losses of one Trainer, with a loss scale each.
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

/// A body with two heads.
struct TwoHeads : torch::nn::Module {
  TwoHeads()
      : body(register_module("body", torch::nn::Linear(4, 8))),
        left(register_module("left", torch::nn::Linear(8, 1))),
        right(register_module("right", torch::nn::Linear(8, 1))) {
    to(testing::device());
  }
  std::vector<at::Tensor> losses(int64_t step, float factor) {
    const auto seed = static_cast<uint64_t>(step * 64 + runtime().rank());
    const at::Tensor h = at::tanh(body->forward(drawn({5, 4}, seed)));
    const auto score = [&](torch::nn::Linear& head) {
      return (head->forward(h).to(at::kFloat) - 1).square().mean();
    };
    return {score(left), score(right) * factor};
  }
  torch::nn::Linear body, left, right;
};

std::shared_ptr<TwoHeads> two_heads() {
  at::manual_seed(7);
  return std::make_shared<TwoHeads>();
}

amp::LossScalerOptions scale_options() {
  return amp::LossScalerOptions().init_scale(1024).growth_interval(3);
}

std::vector<Precision> precisions() {
  return {Precision::O0().loss_scale(scale_options()),
          Precision::O0().wire(at::kHalf).loss_scale(scale_options()),
          Precision::O1().loss_scale(scale_options()), Precision::O2().loss_scale(scale_options())};
}

TrainerOptions options(const Precision& precision, int64_t accumulate, int64_t losses = 2) {
  return TrainerOptions().precision(precision).accumulate(accumulate).losses(losses);
}

/// Infinity on the last rank.
float overflows_here(bool planted) {
  return planted && runtime().rank() == runtime().size() - 1 ? overflow_factor : 1.0F;
}

TEST(SeveralLosses, SeveralLossesTrainAsTheirSumDoes) {
  for (const Precision& precision : precisions()) {
    for (const int64_t accumulate : {1, 2}) {
      const auto one = two_heads();
      const auto two = two_heads();
      const at::Tensor start = flat(one->parameters());
      Trainer sum(runtime(), one, SGD(0.1), options(precision, accumulate, 1));
      Trainer several(runtime(), two, SGD(0.1), options(precision, accumulate));
      for (int64_t step = 0; step < 6 * accumulate; ++step) {
        const auto expected = sum.step([&] {
          const auto parts = one->losses(step, 1);
          return parts[0] + parts[1];
        });
        const auto found = several.step([&] { return Loss::several(two->losses(step, 1)); });
        EXPECT_NEAR(found.loss(), expected.loss(), 1e-3);
        if (found.closes_update()) {
          EXPECT_NEAR(found.grad_norm(), expected.grad_norm(), 1e-2 * expected.grad_norm());
        }
      }
      const double tolerance = precision.level() == Precision::Level::O0 ? 1e-3 : 1e-2;
      EXPECT_LT(
          testing::relative_distance(flat_masters(several) - start, flat_masters(sum) - start),
          tolerance)
          << precision.describe();
      EXPECT_EQ(several.updates(), 6);
      EXPECT_TRUE(several.replicas_agree());
    }
  }
}

TEST(SeveralLosses, OnlyTheLossThatOverflowedBacksOff) {
  for (const Precision& precision : precisions()) {
    for (const int64_t accumulate : {1, 2}) {
      const auto model = two_heads();
      Trainer trainer(runtime(), model, AdamW(1e-2), options(precision, accumulate));
      amp::LossScaler left(scale_options());
      amp::LossScaler right(scale_options());
      for (int64_t update = 0; update < 10; ++update) {
        const bool planted = update == 2 || update == 3 || update == 8;
        const at::Tensor before = flat_masters(trainer).clone();
        StepReport report;
        for (int64_t k = 0; k < accumulate; ++k) {
          report = trainer.step([&] {
            return Loss::several(
                model->losses(update * accumulate + k, overflows_here(planted && k == 0)));
          });
        }
        EXPECT_EQ(report.skipped(), planted) << update;
        EXPECT_EQ(at::equal(flat_masters(trainer), before), planted) << update;
        left.update(false);
        right.update(planted);
        EXPECT_EQ(trainer.loss_scale(0), left.value()) << update;
        EXPECT_EQ(trainer.loss_scale(1), right.value()) << update;
        EXPECT_TRUE(trainer.replicas_agree());
      }
      EXPECT_EQ(trainer.updates(), 7);
      EXPECT_EQ(trainer.scaler_state(0).skipped, 0);
      EXPECT_EQ(trainer.scaler_state(1).skipped, 3);
    }
  }
}

/// The masters after four updates; `overflows` windows in which the right loss does come first.
at::Tensor after_overflows(const Precision& precision, int64_t overflows) {
  const auto model = two_heads();
  Trainer trainer(runtime(), model, AdamW(1e-2), options(precision, 2));
  for (int64_t step = -2 * overflows; step < 8; ++step) {
    trainer.step(
        [&] { return Loss::several(model->losses(step + 100, overflows_here(step < 0))); });
  }
  EXPECT_EQ(trainer.updates(), 4);
  EXPECT_EQ(trainer.loss_scale(0) / trainer.loss_scale(1), std::exp2(overflows));
  return flat_masters(trainer);
}

TEST(SeveralLosses, LossesOfDifferentScalesAreAddedInOneUnit) {
  const auto fixed_growth = amp::LossScalerOptions().init_scale(1024).growth_interval(100);
  for (const Precision& precision : {Precision::O0().loss_scale(fixed_growth),
                                     Precision::O0().wire(at::kHalf).loss_scale(fixed_growth)}) {
    EXPECT_TRUE(at::equal(after_overflows(precision, 0), after_overflows(precision, 3)));
  }
}

TEST(SeveralLosses, ASumThatOverflowsOnTheWireLowersTheUnitAlone) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3}));
  Trainer trainer(runtime(), model, SGD(1e-3),
                  options(Precision::O0().wire(at::kHalf).loss_scale(scale_options()), 1));
  const auto step = [&] {
    return trainer.step([&] {
      return Loss::several({model->weight.sum() * 40, model->weight.sum() * 30});
    });
  };
  StepReport report = step();  // 70 * 1024 is no fp16 number
  EXPECT_TRUE(report.skipped());
  EXPECT_EQ(report.scale(), 1024);
  report = step();
  EXPECT_FALSE(report.skipped());
  EXPECT_EQ(report.scale(), 512);
  EXPECT_EQ(trainer.loss_scale(0), 1024);
  EXPECT_EQ(trainer.loss_scale(1), 1024);
  EXPECT_TRUE(at::allclose(model->weight.detach(), testing::full({3}, 1 - 0.07)));
}

TEST(SeveralLosses, ALateHostMovesTheScalesOfSeveralLossesAlike) {
  const auto two = options(Precision::O2().loss_scale(scale_options()), 2);
  const auto models = std::make_pair(two_heads(), two_heads());
  Trainer prompt(
      std::make_unique<TrainerImpl>(runtime(), models.first, AdamW(1e-2), two, HostActs::at_once));
  Trainer late(std::make_unique<TrainerImpl>(runtime(), models.second, AdamW(1e-2), two,
                                             HostActs::one_window_late));
  const auto step_both = [&](int64_t step, float factor) {
    prompt.step([&] { return Loss::several(models.first->losses(step, factor)); });
    late.step([&] { return Loss::several(models.second->losses(step, factor)); });
  };
  const auto expect_same = [&] {
    EXPECT_TRUE(at::equal(flat(models.first->parameters()), flat(models.second->parameters())));
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(prompt.impl().step->loss_scales().scalers()[i].value(),
                late.impl().step->loss_scales().scalers()[i].value());
    }
  };
  for (int64_t step = 0; step < 20; ++step) {
    step_both(step, overflows_here(step == 6 || step == 13));
    expect_same();
  }
  // A window in which a rank fails never was.
  const double scale = late.impl().step->loss_scales().scalers()[1].value();
  const auto fail = [&](Trainer& trainer, TwoHeads& model) {
    for (int64_t k = 0; k < 3; ++k) {  // a late host hears of it in the next window
      trainer.step([&]() -> Loss {
        LOCKSTEP_CHECK(runtime().rank() != 0 || k != 0, "planted");
        return Loss::several(model.losses(30, overflows_here(true)));
      });
    }
  };
  EXPECT_THAT(error_of([&] { fail(prompt, *models.first); }), HasSubstr("planted"));
  EXPECT_THAT(error_of([&] { fail(late, *models.second); }), HasSubstr("planted"));
  EXPECT_EQ(late.impl().step->loss_scales().scalers()[1].value(), scale);
  for (int64_t step = 40; step < 44; ++step) {
    step_both(step, 1);
  }
  expect_same();
}

TEST(SeveralLosses, TheScalesOfSeveralLossesResume) {
  const testing::SharedFolder folder;
  const auto saved = options(Precision::O2().loss_scale(scale_options()), 2)
                         .snapshots(SnapshotOptions().folder(folder.file("run")));
  const auto train = [](Trainer& trainer, TwoHeads& model, int64_t begin, int64_t end) {
    for (int64_t step = begin; step < end; ++step) {
      trainer.step([&] {
        return Loss::several(model.losses(step, overflows_here(step == 2 || step == 9)));
      });
    }
  };
  at::Tensor end;
  std::vector<double> scales;
  {
    const auto model = two_heads();
    Trainer trainer(runtime(), model, AdamW(1e-2), saved);
    train(trainer, *model, 0, 8);
    trainer.save();
    trainer.finish_saving();
    train(trainer, *model, 8, 16);
    end = flat_masters(trainer).clone();
    scales = {trainer.loss_scale(0), trainer.loss_scale(1)};
    EXPECT_NE(scales[0], scales[1]);
  }
  const auto model = two_heads();
  Trainer trainer(runtime(), model, AdamW(1e-2), saved);
  EXPECT_TRUE(trainer.resume().resumed);
  train(trainer, *model, 8, 16);
  EXPECT_TRUE(at::equal(flat_masters(trainer), end));
  EXPECT_EQ(trainer.loss_scale(0), scales[0]);
  EXPECT_EQ(trainer.loss_scale(1), scales[1]);
}

TEST(SeveralLosses, DiagnosesTheOverflowOfOneOfSeveralLosses) {
  const auto model = two_heads();
  Trainer trainer(runtime(), model, AdamW(1e-2),
                  options(Precision::O1().loss_scale(scale_options()), 1));
  const auto step = [&](int64_t at, bool planted) {
    return trainer.step([&] { return Loss::several(model->losses(at, overflows_here(planted))); });
  };
  step(0, false);
  trainer.diagnose_next_overflow();
  step(1, false);
  EXPECT_TRUE(step(2, true).skipped());
  EXPECT_THAT(trainer.diagnosis(), HasSubstr(c10::str("rank ", runtime().size() - 1)));
  EXPECT_FALSE(step(3, false).skipped());
}

TEST(SeveralLosses, AWrongNumberOfLossesIsNamed) {
  const auto model = two_heads();
  Trainer two(runtime(), model, AdamW(1e-2), options(Precision::O0(), 1));
  EXPECT_THAT(error_of([&] { two.step([&] { return model->losses(0, 1)[0]; }); }),
              HasSubstr("the closure returned 1 loss, TrainerOptions.losses is 2"));
  EXPECT_THAT(error_of([&] { two.step([&] { return Loss::sum(model->losses(0, 1)[0], 2); }); }),
              HasSubstr("the closure returned 1 loss, TrainerOptions.losses is 2"));
  EXPECT_THAT(error_of([&] { two.step([&] { return Loss::several({}); }); }),
              HasSubstr("there is no loss"));
  EXPECT_THAT(error_of([&] { two.loss_scale(2); }), HasSubstr("there is no loss 2"));
  two.backward(Loss::several(model->losses(0, 1)));  // the other form
  EXPECT_FALSE(two.update().skipped());
  EXPECT_THAT(error_of([&] { TrainerOptions().losses(0).validate(); }),
              HasSubstr("TrainerOptions.losses must be >= 1"));
  EXPECT_THAT(error_of([&] { TrainerOptions().losses(2).cuda_graph(true).validate(); }),
              HasSubstr("losses must be 1"));
  const auto other = two_heads();
  Trainer one(runtime(), other, AdamW(1e-2));
  EXPECT_THAT(error_of([&] { one.step([&] { return Loss::several(other->losses(0, 1)); }); }),
              HasSubstr("the closure returned 2 losses, TrainerOptions.losses is 1"));
}

}  // namespace
}  // namespace lockstep
