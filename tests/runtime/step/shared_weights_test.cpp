// One copy of the weights for the ranks of a node (TrainerOptions::share_weights): bits, memory,
// and what the program writes.
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/checkpointing/activation/memory_meter.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/adamw.h>

#include <algorithm>

#include "error_of.h"
#include "file_limit.h"
#include "mapped_memory.h"
#include "shared_runs.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

using testing::FileLimit;
using testing::Mapped;
using testing::mapped_at;
using testing::WideRun;

int64_t sum_of_all_ranks(int64_t number) {
  int64_t sum = 0;
  for (const int64_t each : runtime().control().all_gather_numbers(number)) {
    sum += each;
  }
  return sum;
}

TEST(SharedWeights, HaveTheBitsOfAPlainRun) {
  for (const Precision& level : levels()) {
    const auto options = TrainerOptions()
                             .precision(level)
                             .accumulate(2)
                             .clip_grad_norm(0.5)
                             .clip_grad_value(0.1)
                             .ema(0.9)
                             .schedule(WarmupCosine(3, 20))
                             .buckets(small_buckets());
    const auto adamw = AdamW(1e-2).weight_decay(0.1).no_decay_on_norms_and_biases();
    expect_same(run(adamw, shared(options), 5), run(adamw, options, 5), level.describe());
  }
}

TEST(SharedWeights, HaveTheBitsOfAShardedRunForEveryOptimizer) {
  const TorchOptimizer torch_adamw([](std::vector<at::Tensor> masters) {
    return std::make_unique<torch::optim::AdamW>(std::move(masters), 1e-2);
  });
  for (const Precision& precision : {at_scale(Precision::O0()), testing::half_precision()}) {
    const auto sharded =
        TrainerOptions().precision(precision).shard_optimizer(true).share_weights(false).ema(0.9);
    for (const auto& spec :
         {Adam(1e-2).moments(MomentFormat::bf16).clone(), SGD(0.1).momentum(0.9).clone(),
          Lion(1e-3).clone(), LAMB(1e-3).clone(), torch_adamw.clone()}) {
      expect_same(run(*spec, shared(sharded), 4), run(*spec, sharded, 4), spec->describe());
    }
  }
}

TEST(SharedWeights, HaveTheBitsOfAPlainRunInReproducibleRuns) {
  const auto options = TrainerOptions().reproducible(true).accumulate(2);
  expect_same(run(AdamW(1e-2), shared(options), 6, /*with_overflows=*/false),
              run(AdamW(1e-2), options, 6, /*with_overflows=*/false), "reproducible");
}

TEST(SharedWeights, HaveTheBitsOfAPlainRunUnderCheckpoint) {
  const auto trained = [](const TrainerOptions& options) {
    at::manual_seed(7);
    const auto model = std::make_shared<testing::Mlp>(37);
    Trainer trainer(runtime(), model, AdamW(1e-2), options);
    for (int64_t step = 0; step < 5; ++step) {
      const testing::Batch batch = testing::mlp_batch(step, runtime().rank());
      trainer.step([&] {
        const at::Tensor y =
            checkpoint([model](const at::Tensor& x) { return model->forward(x); }, batch.x);
        return Loss((y.to(at::kFloat) - batch.y).square().mean());
      });
    }
    return testing::flat(model->parameters());
  };
  for (const Precision& level : levels()) {
    const auto options = TrainerOptions().precision(level);
    EXPECT_TRUE(at::equal(trained(shared(options)), trained(options))) << level.describe();
  }
}

TEST(SharedWeights, AreOneCopyForAllRanks) {
  if (runtime().size() == 1) {
    return;
  }
  for (const Precision& level : kinds_of_masters()) {
    WideRun run(shared(TrainerOptions().precision(level)));
    run.train(3);
    for (const at::Tensor& weight : {run.model->layer->weight, run.model->last}) {
      const Mapped mapped = mapped_at(weight.const_data_ptr());
      EXPECT_EQ(mapped.anonymous, 0) << level.describe();
      const auto files = runtime().control().all_gather_bytes(mapped.file);
      EXPECT_EQ(files, std::vector<std::string>(files.size(), mapped.file));
    }
  }
}

TEST(SharedWeights, TakeTheMemoryOfOneCopy) {
  if (runtime().size() == 1) {
    return;
  }
  struct Bytes {
    int64_t live, peak, weights;
  };
  const auto of_three_updates = [](const TrainerOptions& options) {
    const MemoryMeter meter;
    WideRun run(options);
    run.train(3);
    return Bytes{meter.live(), meter.peak(), run.trainer.memory().weights};
  };
  const Bytes own = of_three_updates(TrainerOptions().shard_optimizer(true).share_weights(false));
  const Bytes one = of_three_updates(shared());
  const int64_t copy = own.weights;
  EXPECT_GE(own.live - one.live, copy);  // the node's copy is not a tensor's
  EXPECT_LT(one.peak, own.peak);
  // A division of each rank may leave a rest.
  EXPECT_NEAR(sum_of_all_ranks(one.weights), copy, runtime().size());
}

TEST(SharedWeights, AWriteOnOneRankIsAnErrorOnAllThatNamesTheWeight) {
  if (runtime().size() == 1) {
    return;
  }
  const auto by_operator = [](const at::Tensor& weight) {
    const at::NoGradGuard no_grad;
    weight.add_(1.0);
  };
  const auto by_pointer = [](const at::Tensor& weight) {
    static_cast<unsigned char*>(weight.mutable_data_ptr())[weight.nbytes() - 1] ^= 0x10U;
  };
  for (const Precision& level : kinds_of_masters()) {
    for (const bool is_pointer : {false, true}) {
      const int writer = is_pointer ? 0 : runtime().size() - 1;
      WideRun run(shared(TrainerOptions().precision(level)));
      run.train(2);
      const at::Tensor before = run.model->last.detach().clone();
      if (runtime().rank() == writer) {
        is_pointer ? by_pointer(run.model->last) : by_operator(run.model->last);
      }
      runtime().control().barrier().wait();
      if (runtime().rank() != writer) {
        EXPECT_TRUE(at::equal(run.model->last, before)) << "a write of another rank came here";
      }
      const int64_t updates = run.trainer.updates();
      EXPECT_THAT(error_of([&] { run.train(1); }),
                  AllOf(HasSubstr("weight last was written"), HasSubstr("adopt_weights()")));
      EXPECT_EQ(run.trainer.updates(), updates);
      EXPECT_FALSE(run.trainer.replicas_agree());
    }
  }
}

TEST(SharedWeights, AreWhatAShardedOptimizerHasUnlessItsOptionIsFalse) {
  const auto shares = [](const TrainerOptions& options) {
    WideRun run(options);
    run.train(1);
    return mapped_at(run.model->layer->weight.const_data_ptr()).anonymous == 0;
  };
  const auto sharded = TrainerOptions().shard_optimizer(true);
  EXPECT_FALSE(shares({}));
  EXPECT_EQ(shares(sharded), runtime().size() > 1);
  EXPECT_FALSE(shares(TrainerOptions(sharded).share_weights(false)));
  const auto table =
      std::make_shared<torch::nn::EmbeddingImpl>(torch::nn::EmbeddingOptions(4, 3).max_norm(1.0));
  const Trainer with_a_table(runtime(), table, AdamW(1e-2), sharded);  // is not refused
}

/// What programs do between some updates, through weights and views of them.
void clamp_and_scale(Wide& model, int64_t update) {
  const at::NoGradGuard no_grad;
  if (update % 2 == 0) {
    model.layer->weight.clamp_(-0.01, 0.02);
    model.layer->bias.narrow(0, 3, 100).mul_(0.5);
  }
  if (update % 3 == 1) {
    model.last.fill_(0.25);
  }
}

TEST(SharedWeights, ByDefaultTakeWhatEveryRankWritesWithTheBitsOfAPlainRun) {
  const auto trained = [](const TrainerOptions& options) {
    WideRun run(options);
    for (int64_t update = 0; update < 6; ++update) {
      clamp_and_scale(*run.model, update);
      run.train(1);
    }
    clamp_and_scale(*run.model, 6);
    const at::Tensor masters = testing::flat_masters(run.trainer);
    EXPECT_TRUE(run.trainer.replicas_agree());
    return at::cat({testing::flat(run.model->parameters()).to(at::kFloat), masters});
  };
  for (const Precision& level : levels()) {
    const auto options = TrainerOptions().precision(level).ema(0.9);
    EXPECT_TRUE(at::equal(trained(TrainerOptions(options).shard_optimizer(true)), trained(options)))
        << level.describe();
  }
}

TEST(SharedWeights, ByDefaultTakeWritesInAnUpdateThatIsSkipped) {
  const auto trained = [](const TrainerOptions& options) {
    WideRun run(options);
    run.train(2);
    clamp_and_scale(*run.model, 4);
    run.trainer.step([&] { return Loss(run.model->loss(9) * 1e30F * 1e30F); });
    const at::Tensor after_skip = testing::flat(run.model->parameters()).clone();
    run.train(1);
    return at::cat({after_skip, testing::flat(run.model->parameters())}).to(at::kFloat);
  };
  for (const Precision& level : {Precision::O2(), Precision::O0().wire(at::kHalf)}) {
    const auto options = TrainerOptions().precision(level);
    EXPECT_TRUE(at::equal(trained(TrainerOptions(options).shard_optimizer(true)), trained(options)))
        << level.describe();
  }
}

TEST(SharedWeights, ByDefaultTakeWhatAPointerWroteOnEveryRank) {
  WideRun run(TrainerOptions().shard_optimizer(true));
  run.train(1);
  auto* values = run.model->last.mutable_data_ptr<float>();
  std::fill(values, values + run.model->last.numel(), 0.5F);
  for (const auto& [name, master] : run.trainer.masters()) {
    EXPECT_EQ(at::equal(master, at::full_like(master, 0.5)), name == "last") << name;
  }
}

TEST(SharedWeights, ByDefaultRefuseWritesThatDifferBetweenRanks) {
  if (runtime().size() == 1) {
    return;
  }
  for (const Precision& level : kinds_of_masters()) {
    for (const int writer : {0, runtime().size() - 1}) {
      WideRun run(TrainerOptions().precision(level).shard_optimizer(true));
      run.train(2);
      const at::Tensor last = run.model->last.detach();
      const at::Tensor before = last.clone();
      if (runtime().rank() == writer) {
        last.add_(1.0);
      }
      EXPECT_FALSE(run.trainer.replicas_agree());
      const int64_t updates = run.trainer.updates();
      EXPECT_THAT(error_of([&] { run.train(1); }),
                  AllOf(HasSubstr("replicas have diverged"),
                        HasSubstr("The program wrote into weight last on rank")));
      EXPECT_EQ(run.trainer.updates(), updates);
      last.copy_(before);
      run.train(1);
      EXPECT_EQ(run.trainer.updates(), updates + 1);
    }
  }
}

TEST(SharedWeights, AWriteOfTheSameBytesIsNone) {
  WideRun run(shared());
  run.train(1);
  {
    const at::NoGradGuard no_grad;
    run.model->layer->weight.mul_(1.0);
    run.model->last.clamp_(-100.0, 100.0);
  }
  run.train(2);
  EXPECT_TRUE(run.trainer.replicas_agree());
}

TEST(SharedWeights, AdoptedWritesHaveTheBitsOfAPlainRun) {
  const auto trained = [](const TrainerOptions& options) {
    WideRun run(options);
    for (int round = 0; round < 3; ++round) {
      run.train(2);
      {
        const at::NoGradGuard no_grad;
        run.model->layer->weight.clamp_(-0.01, 0.02);
        run.model->last.data()[round] *= 0.5;
      }
      run.trainer.adopt_weights();
    }
    run.train(1);
    EXPECT_TRUE(run.trainer.replicas_agree());
    return at::cat({testing::flat(run.model->parameters()).to(at::kFloat),
                    testing::flat_masters(run.trainer).to(at::kFloat)});
  };
  for (const Precision& level : levels()) {
    const auto options = TrainerOptions().precision(level).ema(0.9);
    const at::Tensor plain = trained(options);
    EXPECT_TRUE(at::equal(trained(shared(options)), plain)) << level.describe();
    EXPECT_TRUE(at::equal(trained(TrainerOptions(options).shard_optimizer(true)), plain))
        << level.describe();
  }
}

TEST(SharedWeights, OfATrainerThatIsGoneStayAndCanBeTrainedAgain) {
  const auto trained = [](const TrainerOptions& options) {
    at::manual_seed(5);
    const auto model = std::make_shared<testing::Mlp>(40);
    for (int64_t turn = 0; turn < 2; ++turn) {
      Trainer trainer(runtime(), model, AdamW(1e-2), options);
      trainer.step([&] { return testing::scaled_loss(*model, turn); });
    }
    return testing::flat(model->parameters());
  };
  EXPECT_TRUE(at::equal(trained(shared()), trained({})));
}

TEST(SharedWeights, OfAConstructedModelHaveTheBitsOfAPlainRun) {
  const auto trained = [](const std::shared_ptr<testing::Mlp>& model, bool share) {
    const auto options = TrainerOptions().ema(0.5);
    Trainer trainer(runtime(), model, AdamW(1e-2), share ? shared(options) : options);
    for (int64_t step = 0; step < 3; ++step) {
      trainer.step([&] { return testing::scaled_loss(*model, step); });
    }
    return testing::flat(model->parameters());
  };
  const auto make = [] { return std::make_shared<testing::Mlp>(/*hidden=*/37); };
  at::manual_seed(17);
  const at::Tensor expected = trained(make(), false);
  for (const bool share : {false, true}) {
    at::manual_seed(17);
    EXPECT_TRUE(at::equal(trained(runtime().construct(make), share), expected)) << share;
  }
}

TEST(SharedWeights, AreRefusedByNameWhereTheyCannotWork) {
  EXPECT_THAT(error_of([] { TrainerOptions().share_weights(true).validate(); }),
              HasSubstr("share_weights needs shard_optimizer(true)"));
  const auto table =
      std::make_shared<torch::nn::EmbeddingImpl>(torch::nn::EmbeddingOptions(4, 3).max_norm(1.0));
  EXPECT_THAT(error_of([&] { Trainer(runtime(), table, AdamW(1e-2), shared()); }),
              AllOf(HasSubstr("share_weights: "), HasSubstr("max_norm")));
}

TEST(SharedWeights, WithoutRoomInSharedMemoryEachRankHasACopyAndOneLineSaysSo) {
  if (runtime().size() == 1) {
    return;
  }
  // Many buckets, each with wires in a file of its own, and one file for all weights.
  const auto options = TrainerOptions().buckets(small_buckets());
  ::testing::internal::CaptureStderr();
  std::unique_ptr<Trainer> trainer;
  const auto model = (at::manual_seed(17), std::make_shared<testing::Mlp>(/*hidden=*/37));
  {
    const FileLimit limit(size_t{128} << 10);
    trainer = std::make_unique<Trainer>(runtime(), model, AdamW(1e-2), shared(options));
  }
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(line.find("share_weights: ") != std::string::npos, runtime().rank() == 0) << line;
  trainer->step([&] { return testing::scaled_loss(*model, 0); });
  const auto plain = (at::manual_seed(17), std::make_shared<testing::Mlp>(/*hidden=*/37));
  Trainer other(runtime(), plain, AdamW(1e-2), options);
  other.step([&] { return testing::scaled_loss(*plain, 0); });
  EXPECT_TRUE(at::equal(testing::flat(model->parameters()), testing::flat(plain->parameters())));
}

}  // namespace
}  // namespace lockstep
