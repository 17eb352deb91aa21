// Rounds of local updates: what the ranks make of them together, and how runs with them go on.
#include <lockstep/checkpointing/snapshot/impl/safetensors_file.h>
#include <lockstep/collectives/check.h>
#include <torch/optim/adamw.h>

#include "error_of.h"
#include "local_runs.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

using testing::kRound;
using testing::local;
using testing::several_ranks;
using testing::Trained;

/// True on every rank if the weights have the same bits on all.
bool ranks_agree(const Trainer& trainer) {
  return equal_on_all_ranks(flat_masters(trainer));
}

TEST(LocalUpdatesRanks, OuterStepIsThatOfPythonsSgd) {
  const snapshot::SafetensorsFile python(LOCKSTEP_LOCAL_UPDATES_PYTHON);
  const std::string ranks = "." + std::to_string(runtime().size());
  const std::vector<std::pair<std::string, LocalUpdates>> rules = {
      {"average", LocalUpdates(kRound)},
      {"momentum", LocalUpdates(kRound).outer_lr(0.5).outer_momentum(0.8)},
      {"diloco", LocalUpdates::diloco(kRound)}};
  for (const auto& [name, rule] : rules) {
    const auto model = std::make_shared<OneWeight>(python.tensor("start").clone());
    Trainer trainer(runtime(), model, SGD(0.5), local(rule));
    for (int64_t step = 0; step < 9; ++step) {
      const at::Tensor gradient =
          python.tensor(c10::str("gradient.", step, ".", runtime().rank())).to(testing::device());
      trainer.step([&]() -> Loss { return (model->weight * gradient).sum(); });
      EXPECT_EQ(ranks_agree(trainer), step % kRound == kRound - 1 || !several_ranks()) << step;
      EXPECT_TRUE(trainer.replicas_agree());
    }
    const at::Tensor expected = python.tensor(name + ranks).to(testing::device());
    if (runtime().size() < 3) {  // halves of sums of two are exact
      EXPECT_TRUE(at::equal(model->weight, expected)) << name;
    } else {
      EXPECT_LT(relative_distance(model->weight.detach(), expected), 1e-6) << name;
    }
  }
}

TEST(LocalUpdatesRanks, RoundsOfOneUpdateOfSgdAreSynchronousTraining) {
  for (const int64_t accumulate : {1, 2}) {
    Trained synchronous(TrainerOptions().accumulate(accumulate), SGD(0.1));
    Trained rounds(local(LocalUpdates(1)).accumulate(accumulate), SGD(0.1));
    synchronous.steps(10);
    rounds.steps(10);
    EXPECT_TRUE(ranks_agree(rounds.trainer));
    EXPECT_LT(relative_distance(flat_masters(rounds.trainer), flat_masters(synchronous.trainer)),
              1e-6);
    EXPECT_EQ(rounds.trainer.updates(), synchronous.trainer.updates());
  }
}

TEST(LocalUpdatesRanks, SumsWeighSamplesAsSynchronousTrainingDoes) {
  const auto train = [](const TrainerOptions& options) {
    Trained run(options, SGD(0.1));
    for (int64_t step = 0; step < 6; ++step) {
      const auto batch = testing::mlp_batch(step, runtime().rank());
      const int64_t rows = 1 + (runtime().rank() + step) % 5;
      run.trainer.step([&] {
        return Loss::sum(run.model->loss(batch.x.slice(0, 0, rows), batch.y.slice(0, 0, rows)) *
                             static_cast<double>(rows),
                         static_cast<double>(rows));
      });
    }
    return flat_masters(run.trainer).clone();
  };
  EXPECT_LT(relative_distance(train(local(LocalUpdates(1))), train(TrainerOptions())), 1e-6);
}

TEST(LocalUpdatesRanks, AllRanksSkipAnUpdateThatOneOfThemCannotMake) {
  const auto half = Precision::O2().loss_scale(amp::LossScalerOptions().init_scale(256));
  Trained run(local(LocalUpdates(kRound)).precision(half));
  run.step();
  const at::Tensor before = flat_masters(run.trainer).clone();
  const auto report = run.step(runtime().is_main() ? overflow_factor : 1.0F);
  EXPECT_TRUE(report.skipped());
  EXPECT_TRUE(at::equal(flat_masters(run.trainer), before));
  EXPECT_EQ(run.trainer.loss_scale(), 128);
  EXPECT_EQ(run.trainer.updates(), 1);
  run.step();  // the third of the round
  EXPECT_TRUE(ranks_agree(run.trainer));
  EXPECT_TRUE(testing::is_cast_of_masters(*run.model, run.trainer));
}

TEST(LocalUpdatesRanks, FinishRoundExchangesEarlyAndOnce) {
  Trained run(local(LocalUpdates(100)));
  run.steps(2);
  EXPECT_EQ(ranks_agree(run.trainer), !several_ranks());
  run.trainer.finish_round();
  EXPECT_TRUE(ranks_agree(run.trainer));
  const at::Tensor after = flat_masters(run.trainer).clone();
  run.trainer.finish_round();
  EXPECT_TRUE(at::equal(flat_masters(run.trainer), after));
  Trained synchronous{TrainerOptions()};
  synchronous.trainer.finish_round();  // nothing to do
}

TEST(LocalUpdatesRanks, AverageOfMomentsMakesTheWholeStateEqual) {
  for (const auto& optimizer :
       {AdamW(1e-2).clone(), AdamW(1e-2).moments(MomentFormat::bf16).clone()}) {
    for (const bool average : {false, true}) {
      const SharedFolder folder;
      Trained run(local(LocalUpdates(kRound).average_moments(average))
                      .snapshots(SnapshotOptions().folder(folder.file("run"))),
                  *optimizer);
      run.steps(kRound);
      run.trainer.save();
      run.trainer.finish_saving();
      // Each rank's own state is saved if, and only if, the ranks may differ.
      const Snapshot saved(step_path(folder.file("run"), kRound));
      EXPECT_EQ(saved.own_names("local", 0).empty(), average);
    }
  }
}

/// Trains `total` micro-batches at once, and again with a new process after `first`.
void expect_bit_equal(const Recipe& recipe, int64_t first, int64_t total) {
  const SharedFolder folder;
  std::vector<double> losses;
  at::Tensor weights;
  {
    TrainingRun unbroken(runtime(), recipe);
    unbroken.trainer.resume(folder.file("unbroken"));
    unbroken.train_to(total);
    losses = unbroken.losses;
    weights = flat_masters(unbroken.trainer).clone();
    unbroken.trainer.save();
    unbroken.trainer.finish_saving();
  }
  {
    TrainingRun before(runtime(), recipe);
    before.trainer.resume(folder.file("broken"));
    before.train_to(first);
    before.trainer.save();
  }
  at::manual_seed(987);
  TrainingRun after(runtime(), recipe);
  const ResumeReport report = after.trainer.resume(folder.file("broken"));
  EXPECT_THAT(report.notes, IsEmpty());
  after.done = first;
  after.train_to(total);
  EXPECT_EQ(after.losses, std::vector<double>(losses.begin() + first, losses.end()));
  EXPECT_TRUE(at::equal(flat_masters(after.trainer), weights));
  after.trainer.save();
  after.trainer.finish_saving();
  EXPECT_EQ(testing::digests(step_path(folder.file("broken"), total)),
            testing::digests(step_path(folder.file("unbroken"), total)));
}

TEST(LocalUpdatesRanks, ResumedRunEqualsTheUnbrokenOneBitForBit) {
  const auto torch_adamw = [](std::vector<at::Tensor> masters) {
    return std::make_unique<torch::optim::AdamW>(std::move(masters), 1e-2);
  };
  for (const auto& precision :
       {Precision::O0(), Precision::O1(at::kBFloat16), Precision::O2(at::kBFloat16),
        Precision::O2(at::kBFloat16).remainders()}) {
    SCOPED_TRACE(precision.describe());
    Recipe recipe;
    recipe.options.precision(precision).clip_grad_norm(0.5);
    recipe.options.local_updates(LocalUpdates::diloco(kRound));
    expect_bit_equal(recipe, 4, 8);  // in the middle of a round
    expect_bit_equal(recipe, 6, 8);  // at its end
  }
  Recipe recipe;
  recipe.options.local_updates(LocalUpdates(kRound).average_moments(true));
  expect_bit_equal(recipe, 4, 8);
  expect_bit_equal(recipe, 3, 8);
  recipe.optimizer = TorchOptimizer(torch_adamw).clone();
  expect_bit_equal(recipe, 4, 8);
}

TEST(LocalUpdatesRanks, SnapshotInTheMiddleOfARoundHasTheWeightsOfTheLastExchange) {
  const SharedFolder folder;
  Trained run(local(LocalUpdates(kRound)).snapshots(SnapshotOptions().folder(folder.file("run"))));
  run.steps(kRound);
  const at::Tensor exchanged = flat_masters(run.trainer).clone();
  run.steps(2);
  run.trainer.save();
  run.trainer.finish_saving();
  Trained other(TrainerOptions{});
  other.trainer.load_weights(step_path(folder.file("run"), kRound + 2));
  EXPECT_TRUE(at::equal(flat_masters(other.trainer), exchanged));
  EXPECT_TRUE(other.trainer.replicas_agree());
}

TEST(LocalUpdatesRanks, NewWeightsStartARound) {
  const SharedFolder folder;
  const auto snapshots = SnapshotOptions().folder(folder.file("run"));
  Trained source(TrainerOptions().snapshots(snapshots));
  source.steps(2);
  source.trainer.save();
  source.trainer.finish_saving();
  Trained run(local(LocalUpdates(kRound)));
  run.steps(2);
  run.trainer.load_weights(step_path(folder.file("run"), 2));
  EXPECT_TRUE(at::equal(flat_masters(run.trainer), flat_masters(source.trainer)));
  run.steps(2);
  EXPECT_EQ(ranks_agree(run.trainer), !several_ranks());
  run.step();
  EXPECT_TRUE(ranks_agree(run.trainer));
  {
    const at::NoGradGuard no_grad;
    run.model->first->weight.fill_(0.25);
  }
  run.trainer.adopt_weights();
  EXPECT_TRUE(run.trainer.replicas_agree());
  run.trainer.finish_round();
  EXPECT_TRUE((run.model->first->weight == 0.25).all().item<bool>());
}

TEST(LocalUpdatesRanks, DifferenceOfTheExchangedWeightsIsFound) {
  if (!several_ranks()) {
    return;
  }
  Trained run(local(LocalUpdates(kRound)).compare_replicas_every(1));
  run.steps(kRound);
  {
    const at::NoGradGuard no_grad;
    run.model->first->weight.fill_(0.25 + runtime().rank());
  }
  EXPECT_THAT(error_of([&] { run.trainer.adopt_weights(); }), HasSubstr("Nothing was adopted"));
}

TEST(LocalUpdatesRanks, NoGradientTravelsBetweenExchanges) {
  if (!several_ranks()) {
    return;
  }
  const auto log_after = [](const TrainerOptions& options) {
    Trained run(options);
    run.steps(100);  // the log forgets what was before
    return runtime().communicator().collective_log();
  };
  EXPECT_THAT(log_after(TrainerOptions()), HasSubstr("of Float["));
  const std::string log = log_after(local(LocalUpdates(1000)));
  EXPECT_THAT(log, Not(HasSubstr("of Float[")));
  EXPECT_THAT(log, HasSubstr("of Double[3]"));  // the flags of a window
}

TEST(LocalUpdatesRanks, FailureOfOneRankReachesAllInTheMiddleOfARound) {
  Trained run(local(LocalUpdates(kRound)));
  run.steps(2);
  const bool fails = runtime().rank() == runtime().size() - 1;
  EXPECT_THAT(error_of([&] {
                run.trainer.step([&] {
                  LOCKSTEP_CHECK(!fails, "no such sample");
                  return scaled_loss(*run.model, 7);
                });
              }),
              HasSubstr("no such sample"));
  run.step();  // the third of the round
  EXPECT_TRUE(ranks_agree(run.trainer));
}

TEST(LocalUpdatesRanks, RefusesWhatItCannotBeCombinedWith) {
  const auto refusal = [](const TrainerOptions& options) {
    return error_of([&] { Trained run(options); });
  };
  const TrainerOptions rounds = local(LocalUpdates(2));
  const auto with = [&] { return TrainerOptions(rounds); };
  EXPECT_THAT(refusal(with().shard_optimizer(true)), HasSubstr("use shard_optimizer(false)"));
  EXPECT_THAT(refusal(with().cuda_graph(true)), HasSubstr("use cuda_graph(false)"));
  EXPECT_THAT(refusal(with().reproducible(true)), HasSubstr("use reproducible(false)"));
  EXPECT_THAT(refusal(with().digest_log("digests")), HasSubstr("leave digest_log out"));
  EXPECT_THAT(refusal(with().losses(2)), HasSubstr("losses must be 1, is 2"));
  EXPECT_THAT(refusal(with().ema(0.9)), HasSubstr("use ema(0)"));
  EXPECT_THAT(refusal(with().precision(Precision::O0().wire(at::kHalf))),
              HasSubstr("leave Precision::wire() out"));
  EXPECT_THAT(refusal(with().precision(Precision::O3(at::kBFloat16))),
              HasSubstr("without a master"));
  Trained run(rounds);
  run.model->first->weight.set_requires_grad(false);
  EXPECT_THAT(error_of([&] { run.trainer.adopt_trainable(); }), HasSubstr("cannot change"));
  run.model->first->weight.set_requires_grad(true);
}

TEST(LocalUpdatesRanks, OptionsOutOfRangeAreNamed) {
  const auto refusal = [](const LocalUpdates& updates) {
    return error_of([&] { Trained run(local(updates)); });
  };
  EXPECT_THAT(refusal(LocalUpdates(0)), HasSubstr("LocalUpdates.updates must be >= 1, is 0"));
  EXPECT_THAT(refusal(LocalUpdates(2).outer_lr(0)), HasSubstr("outer_lr must be > 0"));
  EXPECT_THAT(refusal(LocalUpdates(2).outer_momentum(1)), HasSubstr("outer_momentum must be >= 0"));
  EXPECT_THAT(refusal(LocalUpdates(2).outer_nesterov(true)), HasSubstr("needs an outer_momentum"));
}

TEST(LocalUpdatesRanks, MemoryOfTheRoundsIsReported) {
  const int64_t weights = Trained(TrainerOptions()).trainer.memory().weights;
  EXPECT_EQ(Trained(TrainerOptions()).trainer.memory().rounds, 0);
  EXPECT_EQ(Trained(local(LocalUpdates(2))).trainer.memory().rounds, weights);
  EXPECT_EQ(Trained(local(LocalUpdates::diloco(2))).trainer.memory().rounds, 2 * weights);
}

}  // namespace
}  // namespace lockstep
