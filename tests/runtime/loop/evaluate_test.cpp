// evaluate() with a Runtime and with a Trainer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/runtime/trainer.h>

#include "error_of.h"
#include "evaluated.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

using ::testing::Eq;

LoaderOptions batches_of(int64_t size) {
  return LoaderOptions().batch_size(size);
}

/// On this rank alone.
Evaluation alone(const std::shared_ptr<Classifier>& model, int64_t samples) {
  const ValidationLoader<Rows> loader({samples}, 0, 1, runtime().seed(), batches_of(4));
  return evaluate(EvaluateOptions(Communicator::solo(), testing::device()), model, loader,
                  Accuracy(), MeanLoss(), ConfusionMatrix(3));
}

Trainer trainer_of(const std::shared_ptr<Classifier>& model, const TrainerOptions& options = {}) {
  return Trainer(runtime(), model, AdamW(1e-2), options);
}

void train(Trainer& trainer, Classifier& model, int64_t from, int64_t to) {
  for (int64_t step = from; step < to; ++step) {
    trainer.step([&] {
      const at::Tensor x =
          testing::drawn({6, 4}, static_cast<uint64_t>(step * 64 + runtime().rank()));
      return Loss(model.forward(x).to(at::kFloat).square().mean());
    });
  }
}

TEST(EvaluateOnRanks, HasTheBitsOfOneRank) {
  const auto model = classifier();
  for (const int64_t samples : {1, 2, 9, 37}) {
    const auto loader = runtime().validation_loader(Rows{samples}, batches_of(4));
    const Evaluation found =
        evaluate(runtime(), model, loader, Accuracy(), MeanLoss(), ConfusionMatrix(3));
    EXPECT_EQ(found.samples, samples);
    EXPECT_EQ(MetricValue(found).lower_is_better, false) << "the accuracy";
    EXPECT_EQ(found.metric("accuracy").lower_is_better, false);
    EXPECT_EQ(found.metric("loss").lower_is_better, true);
    EXPECT_EQ(found.metric("loss").value, found["loss"]);
    EXPECT_EQ(MetricValue(found).value, found["accuracy"]);
    EXPECT_EQ(bits(found), bits(alone(model, samples))) << samples << " samples";
  }
}

TEST(EvaluateOnRanks, TakesAllSamplesOfALoaderThatTrains) {
  const auto model = classifier();
  auto loader = runtime().loader(Rows{37}, batches_of(4).shuffle(true).drop_last(true).epochs(3));
  for (auto& batch : loader) {
    (void)batch;
    break;
  }
  const SamplerPosition position = loader.position();
  EXPECT_EQ(bits(evaluate(runtime(), model, loader, Accuracy(), MeanLoss(), ConfusionMatrix(3))),
            bits(alone(model, 37)));
  EXPECT_EQ(loader.position(), position);
}

TEST(EvaluateOnRanks, TakesTheSamplesThatEachRankHas) {
  const auto model = classifier();
  const int64_t own = 5 + runtime().rank();
  const auto loader = runtime().local_loader(Rows{own}, batches_of(2));
  const Evaluation found = evaluate(runtime(), model, loader, Accuracy(), MeanLoss());
  EXPECT_EQ(found.samples, 5 * runtime().size() + static_cast<int64_t>(testing::sum_of_ranks()));
  EXPECT_TRUE(equal_on_all_ranks(at::tensor({found["accuracy"], found["loss"]}, at::kDouble)));
}

TEST(EvaluateOnRanks, AnErrorKeepsItsExitCodeOnEveryRank) {
  const auto model = classifier();
  const auto options = batches_of(2).compare_ranks(false);
  const int last = runtime().size() - 1;
  const Rows rows{40, runtime().rank() == last ? 2 * last : -1};
  const auto loader = runtime().validation_loader(rows, options);
  try {
    evaluate(runtime(), model, loader, Accuracy());
    ADD_FAILURE() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::out_of_memory);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(c10::str("rank ", last)), HasSubstr("no memory")));
  }
  EXPECT_THAT(modes(*model), Each(Eq(true)));
  EXPECT_EQ(evaluate(runtime(), model, runtime().validation_loader(Rows{8}), Accuracy()).samples,
            8);
}

TEST(EvaluateOnRanks, RunsUnderTheAutocastOfTheTrainer) {
  const auto model = classifier();
  const Trainer trainer =
      trainer_of(model, TrainerOptions().precision(Precision::O1(at::kBFloat16)));
  const auto loader = runtime().validation_loader(Rows{9}, batches_of(2));
  at::ScalarType dtype = at::kBFloat16;  // of a rank without a batch
  const auto forward = [&](const auto& batch) {
    const at::Tensor scores = model->forward(trainer.to_device(batch.first));
    dtype = scores.scalar_type();
    return scores;
  };
  const Evaluation found = evaluate(trainer, model, loader, forward, MeanLoss());
  EXPECT_EQ(dtype, at::kBFloat16);
  const auto given = EvaluateOptions(runtime()).precision(Precision::O1(at::kBFloat16));
  EXPECT_EQ(bits(evaluate(given, model, loader, forward, MeanLoss())), bits(found));
  evaluate(runtime(), model, loader, forward, MeanLoss());
  EXPECT_EQ(dtype, loader.batches() > 0 ? at::kFloat : at::kBFloat16);
  EXPECT_THAT(error_of([&] { EvaluateOptions(trainer).precision(Precision::O0()); }),
              HasSubstr("its own precision"));
}

TEST(EvaluateOnRanks, AveragesAreSwappedInAndBack) {
  for (const bool sharded : {false, true}) {
    const auto model = classifier();
    Trainer trainer = trainer_of(
        model,
        TrainerOptions().precision(testing::half_precision()).ema(0.5).shard_optimizer(sharded));
    train(trainer, *model, 0, 3);
    const auto averages = trainer.averaged();
    const auto weights = [&] {
      std::vector<at::Tensor> all;
      for (const auto& parameter : model->named_parameters()) {
        all.push_back(parameter.value().detach());
      }
      return flat(all);
    };
    const at::Tensor before = weights();
    const auto loader = runtime().validation_loader(Rows{9}, batches_of(2));
    const auto forward = [&](const auto& batch) {
      const auto parameters = model->named_parameters();
      const auto buffers = model->named_buffers();
      for (const auto& [name, average] : averages) {
        const at::Tensor& weight = parameters.contains(name) ? parameters[name] : buffers[name];
        EXPECT_TRUE(at::equal(weight, average.to(weight.scalar_type()))) << name;
      }
      return model->forward(trainer.to_device(batch.first));
    };
    const auto options = EvaluateOptions(trainer).averaged();
    evaluate(options, model, loader, forward, MeanLoss());
    EXPECT_TRUE(at::equal(weights(), before));
    const auto fails = [&](const auto& /*batch*/) -> at::Tensor { throw Error("stopped"); };
    EXPECT_THAT(error_of([&] { evaluate(options, model, loader, fails, MeanLoss()); }),
                HasSubstr("stopped"));
    EXPECT_TRUE(at::equal(weights(), before));
  }
}

TEST(EvaluateOnRanks, AveragesNeedAnEmaAndTheModelOfTheTrainer) {
  const auto model = classifier();
  const Trainer without = trainer_of(model);
  EXPECT_THAT(error_of([&] { static_cast<void>(AveragedWeights(without, model)); }),
              HasSubstr("ema"));
  const auto averaged = classifier();
  const Trainer with = trainer_of(averaged, TrainerOptions().ema(0.9));
  const auto other = std::make_shared<testing::Mlp>();
  EXPECT_THAT(error_of([&] { static_cast<void>(AveragedWeights(with, other)); }),
              HasSubstr("pass the model of the Trainer"));
}

TEST(EvaluateOnRanks, TrainingGoesOnAsIfItHadNotBeen) {
  std::vector<at::Tensor> masters;
  for (const bool evaluates : {false, true}) {
    const auto model = classifier();
    Trainer trainer = trainer_of(model, TrainerOptions().ema(0.9).accumulate(2));
    train(trainer, *model, 0, 3);  // in the middle of a window
    if (evaluates) {
      const auto loader = runtime().validation_loader(Rows{9}, batches_of(2));
      evaluate(EvaluateOptions(trainer).averaged(), model, loader, Accuracy());
      evaluate(trainer, model, loader, Accuracy());
    }
    train(trainer, *model, 3, 8);
    masters.push_back(flat_masters(trainer).clone());
  }
  EXPECT_TRUE(at::equal(masters[0], masters[1]));
}

TEST(EvaluateOnRanks, RankZeroShowsTheProgress) {
  const auto model = classifier();
  const auto loader = runtime().validation_loader(Rows{9}, batches_of(2));
  ::testing::internal::CaptureStdout();
  evaluate(EvaluateOptions(runtime()).progress("validation"), model, loader, Accuracy());
  const std::string shown = ::testing::internal::GetCapturedStdout();
  if (runtime().is_main()) {
    EXPECT_THAT(shown, HasSubstr("validation 100%"));
  } else {
    EXPECT_EQ(shown, "");
  }
}

}  // namespace
}  // namespace lockstep
