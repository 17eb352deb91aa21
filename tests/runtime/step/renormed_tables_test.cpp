// Embeddings with max_norm, whose forward writes the rows of a rank's own batch: tables stay equal
// on all ranks, with the values of one forward over the joined batch (pytorch#26596).
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/data_parallel.h>
#include <torch/nn/functional/embedding.h>
#include <torch/nn/modules/embedding.h>

#include "error_of.h"
#include "runtime/captured_runs.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

constexpr double kRate = 0.5;
constexpr int64_t kWords = 30;

at::Tensor words(int64_t step, int rank) {
  return at::randint(kWords, {6}, at::detail::createCPUGenerator(7 * step + rank)).to(device());
}

at::Tensor targets(const at::Tensor& words) {
  return words.unsqueeze(1).to(at::kFloat) / static_cast<double>(kWords);
}

/// Two tables, one of them in bags, and a table that shares its weight with the decoder.
struct Words : torch::nn::Module {
  explicit Words(bool limited = true) {
    const auto limit = limited ? std::make_optional(1.0) : std::nullopt;
    table = register_module(
        "table", torch::nn::Embedding(torch::nn::EmbeddingOptions(kWords, 8).max_norm(limit)));
    bags = register_module(
        "bags", torch::nn::EmbeddingBag(
                    torch::nn::EmbeddingBagOptions(kWords, 8).max_norm(limit).norm_type(1.0)));
    last = register_module("last", torch::nn::Linear(8, 4));
    to(device());
  }
  at::Tensor loss(const at::Tensor& words) {
    const at::Tensor read = table(words) + bags(words.unsqueeze(1));
    return (last(read).to(at::kFloat) - targets(words)).square().mean();
  }
  torch::nn::Embedding table{nullptr};
  torch::nn::EmbeddingBag bags{nullptr};
  torch::nn::Linear last{nullptr};
};

std::shared_ptr<Words> seeded() {
  at::manual_seed(11);
  return std::make_shared<Words>();
}

/// Plain LibTorch on the joined batch of all ranks.
void plain_step(Words& model, int64_t first, int64_t accumulate = 1) {
  testing::clear_gradients(model);
  for (int64_t k = 0; k < accumulate; ++k) {
    std::vector<at::Tensor> joined;
    for (int rank = 0; rank < runtime().size(); ++rank) {
      joined.push_back(words(first + k, rank));
    }
    (model.loss(at::cat(joined)) / static_cast<double>(accumulate)).backward();
  }
  testing::descend(model, kRate);
}

double distance(const torch::nn::Module& ours, const torch::nn::Module& expected) {
  return (flat(ours.parameters()) - flat(expected.parameters())).abs().max().item<double>();
}

bool all_equal(const torch::nn::Module& model) {
  bool equal = true;
  for (const at::Tensor& parameter : model.parameters()) {
    equal = equal_on_all_ranks(parameter) && equal;
  }
  return equal;
}

struct Setting {
  const char* name;
  TrainerOptions options;
  double tolerance;
};

std::vector<Setting> settings() {
  const Precision brain = Precision::O2(at::kBFloat16);
  return {{"O0", TrainerOptions(), 1e-5},
          {"O0 accumulated", TrainerOptions().accumulate(2), 1e-5},
          {"O0 sharded", TrainerOptions().shard_optimizer(true), 1e-5},
          {"O1", TrainerOptions().precision(Precision::O1(at::kBFloat16)), 3e-2},
          {"O2 bf16", TrainerOptions().precision(brain), 8e-2},
          {"O2 fp16", TrainerOptions().precision(testing::half_precision()), 2e-2},
          {"O2 sharded", TrainerOptions().precision(brain).shard_optimizer(true), 8e-2},
          {"O2 remainders", TrainerOptions().precision(brain.remainders()), 8e-2}};
}

TEST(RenormedTables, AreThoseOfTheJoinedBatch) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name);
    const SharedFolder folder;
    const auto model = seeded();
    Words plain;
    testing::copy_state(*model, plain);
    Trainer trainer(runtime(), model, SGD(kRate),
                    TrainerOptions(setting.options)
                        .compare_replicas_every(1)
                        .snapshots(SnapshotOptions().folder(folder.file("run"))));
    const int64_t accumulate = setting.options.accumulate();
    for (int64_t step = 0; step < 20; ++step) {
      for (int64_t k = 0; k < accumulate; ++k) {
        trainer.step([&] { return model->loss(words(step * accumulate + k, runtime().rank())); });
      }
      plain_step(plain, step * accumulate, accumulate);
    }
    EXPECT_LT(distance(*model, plain), setting.tolerance);
    EXPECT_LT(model->table->weight.detach().to(at::kFloat).norm(2, 1).max().item<double>(), 1.3);
    EXPECT_TRUE(all_equal(*model));
    EXPECT_TRUE(is_cast_of_masters(*model, trainer));
    trainer.save();
  }
}

/// Each rank evaluates words of its own.
TEST(RenormedTables, OfAnEvaluationAreMergedBeforeTheyAreReadOrSaved) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name);
    const SharedFolder folder;
    const auto model = seeded();
    Trainer trainer(
        runtime(), model, SGD(kRate),
        TrainerOptions(setting.options).snapshots(SnapshotOptions().folder(folder.file("run"))));
    const auto evaluate = [&](int64_t number) {
      const at::NoGradGuard no_grad;
      const amp::Autocast region = trainer.autocast();
      model->loss(words(number, runtime().rank()));
    };
    evaluate(90);
    trainer.save();
    EXPECT_TRUE(all_equal(*model));
    evaluate(91);
    EXPECT_TRUE(trainer.replicas_agree());
    evaluate(92);
    trainer.adopt_weights();
    evaluate(93);
    model->last->bias.set_requires_grad(false);
    trainer.adopt_trainable();
    EXPECT_TRUE(all_equal(*model));
    evaluate(94);  // and the Trainer ends without a complaint
  }
}

TEST(RenormedTables, OfFrozenWeightsAndOfTiesAreMerged) {
  struct Tied : Words {
    Tied() {
      table->weight.set_requires_grad(false);
      decoder = register_module("decoder", torch::nn::Linear(8, kWords));
      decoder->weight = bags->weight;
      to(device());
    }
    at::Tensor loss(const at::Tensor& words) {
      const at::Tensor read = table(words) + bags(words.unsqueeze(1));
      return (decoder(read).to(at::kFloat).sum(1, true) - targets(words)).square().mean();
    }
    torch::nn::Linear decoder{nullptr};
  };
  const SharedFolder folder;
  at::manual_seed(12);
  const auto model = std::make_shared<Tied>();
  Trainer trainer(runtime(), model, SGD(1e-3),
                  TrainerOptions()
                      .unused(UnusedParameters::zeros)
                      .compare_replicas_every(1)
                      .snapshots(SnapshotOptions().folder(folder.file("run"))));
  for (int64_t step = 0; step < 5; ++step) {
    trainer.step([&] { return model->loss(words(step, runtime().rank())); });
  }
  trainer.save();
  EXPECT_TRUE(all_equal(*model));
}

TEST(RenormedTables, OfARankThatFailsInForwardHoldUpNobody) {
  for (const int64_t failing : {0, 1, 2}) {
    const auto model = seeded();
    Trainer trainer(runtime(), model, SGD(kRate), TrainerOptions().compare_replicas_every(1));
    for (int64_t step = 0; step < 4; ++step) {
      const auto one = [&] {
        trainer.step([&] {
          const at::Tensor loss = model->loss(words(step, runtime().rank()));
          LOCKSTEP_CHECK(step != failing || runtime().rank() + 1 != runtime().size(),
                         "no such file");
          return loss;
        });
      };
      if (step == failing) {
        EXPECT_THAT(error_of(one), HasSubstr("no such file"));
      } else {
        one();
      }
    }
    EXPECT_TRUE(trainer.replicas_agree());
    EXPECT_TRUE(all_equal(*model));
  }
}

TEST(RenormedTables, OfDataParallelAreThoseOfTheJoinedBatch) {
  const auto model = seeded();
  Words plain;
  testing::copy_state(*model, plain);
  DataParallel parallel(runtime().communicator(), model);
  for (int64_t step = 0; step < 20; ++step) {
    testing::clear_gradients(*model);
    model->loss(words(step, runtime().rank())).backward();
    parallel.finish();
    testing::descend(*model, kRate);
    plain_step(plain, step);
  }
  EXPECT_LT(distance(*model, plain), 1e-5);
  EXPECT_TRUE(all_equal(*model));
}

TEST(RenormedTables, OfRoundsStayWithTheirRank) {
  const auto model = seeded();
  Trainer trainer(runtime(), model, SGD(kRate), TrainerOptions().local_updates(LocalUpdates(3)));
  for (int64_t step = 0; step < 6; ++step) {
    trainer.step([&] { return model->loss(words(step, runtime().rank())); });
  }
  EXPECT_TRUE(all_equal(*model));
}

TEST(RenormedTables, ThatDifferBetweenRanksAreNamed) {
  const auto model = std::make_shared<Words>(runtime().rank() != 1);
  EXPECT_THAT(error_of([&] { Trainer(runtime(), model, SGD(kRate)); }),
              HasSubstr("rank 0 has embedding table.weight max_norm 1, rank 1 has nothing more"));
  EXPECT_THAT(error_of([&] { DataParallel(runtime().communicator(), model); }),
              HasSubstr("rank 0 has embedding table.weight max_norm 1, rank 1 has nothing more"));
}

TEST(RenormedTables, AreRefusedWhereForwardMayNotWrite) {
  const auto model = seeded();
  if (device().is_cpu()) {
    EXPECT_THAT(error_of([&] {
                  Trainer(runtime(), model, SGD(kRate), TrainerOptions().reproducible(true));
                }),
                HasSubstr("TrainerOptions.reproducible: embedding table.weight max_norm 1"));
  }
  testing::Calls calls;
  EXPECT_THAT(
      error_of([&] {
        Trainer(std::make_unique<TrainerImpl>(
            runtime(), model, SGD(kRate), TrainerOptions().cuda_graph(true),
            HostActs::one_window_late, [&] { return std::make_unique<testing::KeptWork>(calls); },
            Communicator::solo()));
      }),
      HasSubstr("cuda_graph: embedding table.weight max_norm 1"));
}

/// No module tells of it.
TEST(RenormedTables, OfTheFunctionAreNamedWhereRanksDiffer) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name);
    at::manual_seed(11);
    const auto model = std::make_shared<Words>(/*limited=*/false);
    Trainer trainer(runtime(), model, SGD(kRate),
                    TrainerOptions(setting.options).compare_replicas_every(4));
    const auto step = [&](int64_t number) {
      trainer.step([&]() -> Loss {
        const at::Tensor own = words(number, runtime().rank());
        const at::Tensor read = torch::nn::functional::embedding(
                                    own, model->table->weight,
                                    torch::nn::functional::EmbeddingFuncOptions().max_norm(1.0)) +
                                model->bags(own.unsqueeze(1));
        return (model->last(read).to(at::kFloat) - targets(own)).square().mean();
      });
    };
    EXPECT_THAT(error_of([&] {
                  for (int64_t number = 0; number < 24; ++number) {
                    step(number);
                  }
                }),
                AllOf(HasSubstr("replicas have diverged"),
                      HasSubstr("The program wrote into weight table.weight on ranks 0"),
                      HasSubstr("commonest cause is max_norm of functional::embedding")));
  }
}

}  // namespace
}  // namespace lockstep
