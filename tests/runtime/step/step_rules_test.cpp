// The rules that hold in every mode: replicas stay equal, and every rank steps or none does.
#include <lockstep/amp/loss_scaler.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>

#include "runtime/trainer_runs.h"
#include "runtime/windows_late.h"
#include "test_names.h"

namespace lockstep {
namespace {

constexpr int64_t steps = 200;

bool planted_at(int64_t step) {
  return step == 3 || step == 50 || step == 51 || step == 120 || step == 199;
}

/// The factor on this rank's loss: inf on the last rank at some steps.
float planted_factor(int64_t step) {
  const bool here = runtime().rank() == runtime().size() - 1;
  return here && planted_at(step) ? overflow_factor : 1.0F;
}

TEST(StepRules, ScaleBitsAreEqualOnAllRanksAtEveryStep) {
  const auto model = std::make_shared<Mlp>();
  const auto options = amp::LossScalerOptions().init_scale(256).growth_interval(40);
  Trainer trainer(runtime(), model, AdamW(1e-3),
                  TrainerOptions().precision(Precision::O2().loss_scale(options)));
  const amp::ScalerRule rule = amp::scaler_rule(options);
  amp::ScalerState expected = amp::initial_state(options);
  for (int64_t step = 0; step < steps; ++step) {
    const auto report =
        trainer.step([&] { return scaled_loss(*model, step, planted_factor(step)); });
    ASSERT_EQ(report.skipped(), planted_at(step)) << step;
    ASSERT_EQ(report.scale(), expected.scale) << step;
    amp::advance(expected, rule, planted_at(step));
    ASSERT_EQ(trainer.loss_scale(), expected.scale) << step;
    ASSERT_TRUE(equal_on_all_ranks(at::scalar_tensor(trainer.loss_scale(), at::kFloat))) << step;
  }
  EXPECT_EQ(trainer.updates(), steps - 5);
  EXPECT_EQ(trainer.scaler_state().skipped, 5);
}

TEST(StepRules, MastersAreBitEqualOnAllRanksAtEveryStep) {
  for (const Precision& precision : {Precision::O0(), half_precision()}) {
    const auto model = std::make_shared<Mlp>();
    Trainer trainer(runtime(), model, AdamW(1e-2), TrainerOptions().precision(precision));
    const at::Tensor start = flat_masters(trainer);
    for (int64_t step = 0; step < steps; ++step) {
      trainer.step([&] { return scaled_loss(*model, step, planted_factor(step)); });
      ASSERT_TRUE(equal_on_all_ranks(flat_masters(trainer))) << step;
      ASSERT_TRUE(trainer.replicas_agree()) << step;
    }
    EXPECT_FALSE(at::equal(start, flat_masters(trainer)));
  }
}

TEST(StepRules, ReplicasThatDifferAreFound) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  ASSERT_TRUE(trainer.replicas_agree());
  if (runtime().rank() == 1) {
    const at::NoGradGuard no_grad;
    model->second->bias[1] += 1e-6;
  }
  EXPECT_FALSE(trainer.replicas_agree());
}

TEST(StepRules, ModelIsTheCastOfItsMastersAtEveryStep) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const auto model = std::make_shared<Mlp>();
    const auto options = amp::LossScalerOptions().init_scale(256);
    Trainer trainer(runtime(), model, AdamW(1e-2),
                    TrainerOptions().precision(Precision::O2(dtype).loss_scale(options)));
    ASSERT_EQ(model->first->weight.scalar_type(), dtype);
    for (int64_t step = 0; step < steps / 2; ++step) {
      trainer.step([&] { return scaled_loss(*model, step, planted_factor(step)); });
      ASSERT_TRUE(is_cast_of_masters(*model, trainer)) << step;
    }
  }
}

TEST(StepRules, MastersAreEqualAndTheModelIsTheirHalf) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.05).momentum(0.9),
                  TrainerOptions().precision(half_precision()));
  for (int64_t step = 0; step < 150; ++step) {
    trainer.step([&] { return scaled_loss(*model, step); });
    if (step % 10 == 9) {
      ASSERT_TRUE(equal_on_all_ranks(flat_masters(trainer))) << step;
      ASSERT_TRUE(is_cast_of_masters(*model, trainer)) << step;
    }
  }
  for (const at::Tensor& weight : model->parameters()) {
    EXPECT_EQ(weight.scalar_type(), at::kHalf);
    EXPECT_TRUE(equal_on_all_ranks(weight));
  }
  EXPECT_EQ(trainer.updates(), 150);
}

/// Weights, moments, update count and schedule of a run are in its trajectory: a run with skipped
/// updates must end with the bits of one that never saw them.
TEST(StepRules, ASkippedUpdateMovesNothing) {
  const auto precision = Precision::O2().loss_scale(amp::LossScalerOptions::fixed(256));
  for (const int64_t accumulate : {1, 2}) {
    const auto options = TrainerOptions()
                             .precision(precision)
                             .accumulate(accumulate)
                             .clip_grad_norm(0.5)
                             .schedule(WarmupCosine(5, 100));
    const auto run = [&](bool with_planted_steps) {
      at::manual_seed(11);
      const auto model = std::make_shared<Mlp>();
      Trainer trainer(runtime(), model, AdamW(1e-2).weight_decay(0.1), options);
      for (int64_t step = 0; step < 60; ++step) {
        if (planted_at(step) && !with_planted_steps) {
          continue;
        }
        for (int64_t k = 0; k < accumulate; ++k) {
          const float factor = k == 0 ? planted_factor(step) : 1.0F;
          const auto report = trainer.step([&] { return scaled_loss(*model, step, factor); });
          EXPECT_EQ(report.skipped(), report.closes_update() && planted_at(step));
        }
      }
      EXPECT_EQ(trainer.updates(), 57);
      return flat_masters(trainer);
    };
    EXPECT_TRUE(at::equal(run(true), run(false))) << "accumulate " << accumulate;
  }
}

TEST(StepRules, AnInfInAnyMicroBatchOfAnyRankSkipsTheWholeWindow) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1),
                  TrainerOptions().precision(half_precision()).accumulate(3));
  double scale = 256;
  for (int rank = 0; rank < runtime().size(); ++rank) {
    for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
      const at::Tensor before = flat_masters(trainer);
      for (int k = 0; k < 3; ++k) {
        const bool here = rank == runtime().rank() && k == micro_batch;
        const auto report =
            trainer.step([&] { return scaled_loss(*model, k, here ? overflow_factor : 1.0F); });
        EXPECT_EQ(report.closes_update(), k == 2);
        EXPECT_EQ(report.skipped(), k == 2);
        EXPECT_EQ(report.scale(), scale);
      }
      scale /= 2;
      EXPECT_EQ(trainer.loss_scale(), scale);
      EXPECT_TRUE(at::equal(flat_masters(trainer), before));
    }
  }
  EXPECT_EQ(trainer.updates(), 0);
}

TEST(StepRules, BucketsAreNeverRebuilt) {
  const auto model = std::make_shared<Mlp>();
  const auto tiny = BucketOptions().first_bucket_bytes(1).bucket_bytes(1);
  Trainer trainer(runtime(), model, AdamW(1e-3), TrainerOptions().buckets(tiny));
  const auto addresses = [&] {
    std::vector<const void*> result;
    for (const at::Tensor& weight : model->parameters()) {
      result.push_back(weight.const_data_ptr());
    }
    for (const auto& master : trainer.masters()) {
      result.push_back(master.second.const_data_ptr());
    }
    return result;
  };
  const auto at_start = addresses();
  for (int64_t step = 0; step < 20; ++step) {
    trainer.step([&] { return scaled_loss(*model, step); });
    ASSERT_EQ(addresses(), at_start);
  }
}

TEST(StepRules, ASkipDoesNotAdvanceTheSchedule) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(1.0),
                  TrainerOptions().precision(half_precision()).schedule(WarmupLinear(4, 8)));
  std::vector<double> rates;
  for (int64_t step = 0; step < 6; ++step) {
    const float factor = step == 1 || step == 2 ? overflow_factor : 1e-3F;
    const auto report = trainer.step(
        [&] { return scaled_loss(*model, step, runtime().rank() == 0 ? factor : 1e-3F); });
    rates.push_back(report.learning_rate());
  }
  EXPECT_EQ(rates, (std::vector<double>{0.25, 0.5, 0.5, 0.5, 0.75, 1.0}));
}

TEST(StepRules, TheBudgetOfConsecutiveSkipsEndsTheRunOnEveryRank) {
  const auto model = std::make_shared<Mlp>();
  const auto options = amp::LossScalerOptions().init_scale(256).max_consecutive_skips(3);
  Trainer trainer(runtime(), model, SGD(0.1),
                  TrainerOptions().precision(Precision::O2().loss_scale(options)));
  const auto step = [&](bool overflow) {
    return trainer.step([&] {
      return scaled_loss(*model, 0, overflow && runtime().is_main() ? overflow_factor : 1.0F);
    });
  };
  step(true);
  step(true);
  step(false);
  for (int64_t i = 0; i < 3 + testing::windows_late(); ++i) {
    EXPECT_TRUE(step(true).skipped());
  }
  try {
    step(false);
    FAIL() << "the fourth step was made";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::non_finite);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("3 updates in a row were skipped"));
  }
}

}  // namespace
}  // namespace lockstep
