// With UnusedParameters::detect a parameter counts its own updates, in every form of an update.
#include "runtime/snapshot_runs.h"
#include "test_names.h"
#include "update_runs.h"

namespace lockstep {
namespace {

constexpr int64_t kOwnSteps = 9;
constexpr int64_t kOwnOverflow = 3;  // this one is skipped on all ranks

/// Two parameters whose gradients know nothing of each other. bf16 has their values, so that
/// averages begin at the weights in every form.
struct Apart : torch::nn::Module {
  Apart() {
    early = register_parameter("early", values({70}, 1));
    late = register_parameter("late", values({13, 10}, 2));
  }
  static at::Tensor values(at::IntArrayRef sizes, uint64_t seed) {
    return testing::drawn(sizes, seed).to(at::kBFloat16).to(at::kFloat);
  }
  at::Tensor early, late;
};

struct Late {
  at::Tensor master, average;
};

/// `late` gets its first gradient at step `offset`, and the same ones whatever that is.
Late trained(const OptimizerSpec& spec, TrainerOptions options, int64_t offset, bool resumed) {
  const SharedFolder folder;
  options.unused(UnusedParameters::detect)
      .ema(0.9)
      .snapshots(SnapshotOptions().folder(folder.file("run")).asynchronous(false));
  auto model = std::make_shared<Apart>();
  auto trainer = std::make_unique<Trainer>(runtime(), model, spec, options);
  for (int64_t step = 0; step < offset + kOwnSteps; ++step) {
    if (resumed && step == offset + 2) {
      trainer->save();
      trainer.reset();
      model = std::make_shared<Apart>();
      trainer = std::make_unique<Trainer>(runtime(), model, spec, options);
      EXPECT_TRUE(trainer->resume().resumed);
    }
    const int64_t own = step - offset;
    const bool overflows = own == kOwnOverflow || own == -2;
    const auto report = trainer->step([&]() -> Loss {
      const auto seed = static_cast<uint64_t>(step * 16 + runtime().rank());
      at::Tensor loss = (model->early.to(at::kFloat) * testing::drawn({70}, seed)).sum();
      if (own >= 0) {
        const auto own_seed = static_cast<uint64_t>(1'000'000 + own * 16 + runtime().rank());
        loss = loss + (model->late.to(at::kFloat) * testing::drawn({13, 10}, own_seed)).sum();
      }
      return loss * (overflows ? overflow_factor : 0.1F);
    });
    EXPECT_EQ(report.skipped(), overflows);
  }
  EXPECT_TRUE(trainer->replicas_agree());
  return {trainer->masters()[1].second.clone(), trainer->averaged()[1].second.clone()};
}

std::vector<Precision> forms() {
  const auto fixed = amp::LossScalerOptions::fixed(8);
  return {Precision::O0().loss_scale(fixed), Precision::O2().loss_scale(fixed),
          Precision::O2(at::kBFloat16).remainders().loss_scale(fixed),
          Precision::O3(at::kBFloat16).stochastic_rounding().loss_scale(fixed)};
}

template <typename Spec>
void expect_an_own_beginning(Spec spec, bool can_be_sharded = true) {
  for (const MomentFormat format : {MomentFormat::fp32, MomentFormat::bf16}) {
    spec.moments(format);
    for (const Precision& precision : forms()) {
      for (const bool sharded : {false, true}) {
        if (sharded && !(can_be_sharded && runtime().size() > 1)) {
          continue;
        }
        const auto options = TrainerOptions().precision(precision).shard_optimizer(sharded);
        const Late expected = trained(spec, options, 0, false);
        for (const bool resumed : {false, true}) {
          const Late found = trained(spec, options, 5, resumed);
          EXPECT_TRUE(at::equal(found.master, expected.master))
              << spec.describe() << ", " << options.describe() << ", resumed " << resumed
              << ", apart by " << (found.master - expected.master).abs().max().item<float>();
          EXPECT_TRUE(at::equal(found.average, expected.average)) << options.describe();
        }
      }
    }
  }
}

TEST(LateParameters, ALateParameterOfAdamWTrainsAsFromItsOwnBeginning) {
  expect_an_own_beginning(AdamW(1e-2).weight_decay(0.1));
}
TEST(LateParameters, ALateParameterOfAdamTrainsAsFromItsOwnBeginning) {
  expect_an_own_beginning(Adam(1e-2).weight_decay(0.1));
}
TEST(LateParameters, ALateParameterOfSgdTrainsAsFromItsOwnBeginning) {
  expect_an_own_beginning(SGD(1e-2).momentum(0.9).dampening(0.3));
}
TEST(LateParameters, ALateParameterOfLambTrainsAsFromItsOwnBeginning) {
  expect_an_own_beginning(LAMB(1e-2).weight_decay(0.1), /*can_be_sharded=*/false);
}
TEST(LateParameters, ALateParameterOfLionTrainsAsFromItsOwnBeginning) {
  expect_an_own_beginning(Lion(1e-2).weight_decay(0.1));
}

/// Without detect the count that a snapshot has of a late parameter goes on too.
TEST(LateParameters, ASnapshotOfALateParameterGoesOnWithoutDetecting) {
  at::Tensor masters[2];
  for (const bool detects : {true, false}) {
    const SharedFolder folder;
    const auto options = TrainerOptions().snapshots(
        SnapshotOptions().folder(folder.file("run")).asynchronous(false));
    const auto step = [](Trainer& trainer, Apart& model, bool late) {
      trainer.step([&]() -> Loss {
        return late ? model.early.sum() + model.late.sum() : model.early.sum();
      });
    };
    {
      const auto model = std::make_shared<Apart>();
      Trainer trainer(runtime(), model, AdamW(1e-2),
                      TrainerOptions(options).unused(UnusedParameters::detect));
      for (int i = 0; i < 5; ++i) {
        step(trainer, *model, i >= 3);
      }
      trainer.save();
    }
    const auto model = std::make_shared<Apart>();
    Trainer trainer(runtime(), model, AdamW(1e-2),
                    TrainerOptions(options).unused(detects ? UnusedParameters::detect
                                                           : UnusedParameters::error));
    trainer.resume();
    for (int i = 0; i < 3; ++i) {
      step(trainer, *model, true);
    }
    masters[detects ? 0 : 1] = testing::flat_masters(trainer);
  }
  EXPECT_TRUE(at::equal(masters[0], masters[1]));
}

}  // namespace
}  // namespace lockstep
