// Parameters in fp64 on several ranks.
#include <lockstep/runtime/data_parallel.h>

#include <limits>

#include "double_models.h"
#include "error_of.h"
#include "runtime/across_ranks.h"
#include "runtime/snapshot_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

const std::vector<std::vector<int64_t>> kSizes = {{3}, {5, 7}, {70}, {1100}};

std::vector<at::Tensor> gradients(int64_t step, int rank) {
  return doubles(kSizes, 1 + step * 16 + rank);
}

struct Ended {
  std::vector<at::Tensor> weights, averages;
  double norm = 0.0;
};

Ended run(const OptimizerSpec& optimizer, const TrainerOptions& options,
          const std::vector<at::Tensor>& start = doubles(kSizes, 0)) {
  const auto model = std::make_shared<Weights>(start);
  Trainer trainer(runtime(), model, optimizer, options);
  Ended ended;
  for (int64_t step = 0; step < 6 * options.accumulate(); ++step) {
    const auto report =
        trainer.step([&] { return model->loss(gradients(step, runtime().rank())); });
    ended.norm = report.closes_update() ? report.grad_norm() : 0.0;
  }
  EXPECT_TRUE(trainer.replicas_agree());
  ended.weights = model->values();
  ended.averages = options.ema() > 0.0 ? values(trainer.averaged()) : ended.weights;
  return ended;
}

TEST(DoubleRanks, GradientsAreAddedInFp64InTheOrderOfTheRanks) {
  const auto model = std::make_shared<Weights>(doubles(kSizes, 0));
  for (const at::Tensor& parameter : model->all) {
    parameter.detach().zero_();
  }
  Trainer trainer(runtime(), model, SGD(1.0));
  trainer.step([&] { return model->loss(gradients(0, runtime().rank())); });
  for (size_t i = 0; i < kSizes.size(); ++i) {
    at::Tensor sum = gradients(0, 0)[i];
    for (int rank = 1; rank < runtime().size(); ++rank) {
      sum = sum + gradients(0, rank)[i];
    }
    EXPECT_TRUE(at::equal(model->all[i], -(sum / runtime().size())));
  }
}

TEST(DoubleRanks, AnFp32WireRoundsGradientsAndNothingElse) {
  const double whole = 1.0 + 1e-12;
  const auto model =
      std::make_shared<Weights>(std::vector<at::Tensor>{at::zeros({9}, at::kDouble)});
  Trainer trainer(runtime(), model, SGD(whole),
                  TrainerOptions().precision(Precision::O0().wire(at::kFloat)));
  trainer.step([&] { return model->loss({at::full({9}, whole, at::kDouble)}); });
  EXPECT_TRUE(at::equal(model->all[0], at::full({9}, -whole, at::kDouble)));
  EXPECT_EQ(trainer.memory().gradients, 64 * 4);
}

TEST(DoubleRanks, ShardingHasTheBitsOfAnUnshardedRun) {
  const auto small = BucketOptions().first_bucket_bytes(64).bucket_bytes(1000);
  for (const auto& optimizer :
       {AdamW(1e-2).weight_decay(0.1).clone(), SGD(1e-2).momentum(0.9).clone()}) {
    for (const auto& precision : {Precision::O0(), Precision::O0().wire(at::kFloat)}) {
      const auto options = TrainerOptions()
                               .precision(precision)
                               .accumulate(2)
                               .clip_grad_norm(0.5)
                               .clip_grad_value(0.1)
                               .ema(0.9)
                               .buckets(small);
      const Ended whole = run(*optimizer, options);
      const Ended sharded = run(*optimizer, TrainerOptions(options).shard_optimizer(true));
      EXPECT_TRUE(equal(sharded.weights, whole.weights)) << optimizer->describe();
      EXPECT_TRUE(equal(sharded.averages, whole.averages)) << optimizer->describe();
      EXPECT_EQ(sharded.norm, whole.norm);
    }
  }
}

TEST(DoubleRanks, MixedModelsTrainEachParameterInItsDtype) {
  auto start = doubles(kSizes, 0);
  start[0] = start[0].to(at::kFloat);
  start[2] = start[2].to(at::kFloat);
  const Ended mixed = run(AdamW(1e-2), TrainerOptions(), start);
  const Ended wide = run(AdamW(1e-2), TrainerOptions());
  EXPECT_EQ(mixed.weights[0].scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(mixed.weights[1], wide.weights[1]));
  EXPECT_TRUE(at::equal(mixed.weights[3], wide.weights[3]));
  EXPECT_TRUE(testing::equal_on_all_ranks(mixed.weights[0]));
  EXPECT_LT((mixed.weights[2] - wide.weights[2]).abs().max().item<double>(), 1e-6);
}

TEST(DoubleRanks, OneRanksOverflowSkipsOnAll) {
  const auto model = std::make_shared<Weights>(doubles(kSizes, 0));
  Trainer trainer(runtime(), model, AdamW(1e-2));
  auto mine = gradients(0, runtime().rank());
  if (runtime().rank() == runtime().size() - 1) {
    mine[3][1099] = std::numeric_limits<double>::infinity();
  }
  EXPECT_TRUE(trainer.step([&] { return model->loss(mine); }).skipped());
  EXPECT_TRUE(equal(model->values(), doubles(kSizes, 0)));
}

TEST(DoubleRanks, ALowBitThatDiffersIsFound) {
  const auto model = std::make_shared<Weights>(doubles({{5}}, 0));
  Trainer trainer(runtime(), model, AdamW(1e-2), TrainerOptions().compare_replicas_every(1));
  trainer.step([&] { return model->loss(doubles({{5}}, 1)); });
  if (runtime().is_main()) {
    const at::NoGradGuard no_grad;
    double& weight = model->all[0].mutable_data_ptr<double>()[3];
    weight = std::nextafter(weight, 2.0);
  }
  EXPECT_FALSE(trainer.replicas_agree());
  EXPECT_THAT(error_of([&] { trainer.step([&] { return model->loss(doubles({{5}}, 2)); }); }),
              HasSubstr("replicas have diverged"));
  const at::NoGradGuard no_grad;  // so that the end of the Trainer compares equal weights
  model->all[0].zero_();
  EXPECT_TRUE(trainer.replicas_agree());
}

TEST(DoubleRanks, ASnapshotResumesWithTheSameBits) {
  for (const bool shard : {false, true}) {
    const testing::SharedFolder folder;
    const auto options = TrainerOptions().shard_optimizer(shard).ema(0.9).snapshots(
        SnapshotOptions().folder(folder.file("run")));
    const auto train = [&](Trainer& trainer, const Weights& model, int64_t first) {
      for (int64_t step = first; step < first + 3; ++step) {
        trainer.step([&] { return model.loss(gradients(step, runtime().rank())); });
      }
    };
    const auto model = std::make_shared<Weights>(doubles(kSizes, 0));
    Trainer trainer(runtime(), model, AdamW(1e-2), options);
    train(trainer, *model, 0);
    trainer.save();
    trainer.finish_saving();
    train(trainer, *model, 3);
    const auto again = std::make_shared<Weights>(doubles(kSizes, 9));
    Trainer other(runtime(), again, AdamW(1e-2), options);
    other.resume(folder.file("run"));
    EXPECT_EQ(other.updates(), 3);
    train(other, *again, 3);
    EXPECT_TRUE(equal(again->values(), model->values()));
    EXPECT_TRUE(equal(values(other.averaged()), values(trainer.averaged())));
  }
}

}  // namespace
}  // namespace lockstep
