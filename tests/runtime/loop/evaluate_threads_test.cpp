// evaluate() on ranks that are threads, up to 8.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>

#include <cmath>

#include "collectives/thread_ranks.h"
#include "error_of.h"
#include "evaluated.h"
#include "test_names.h"

namespace lockstep {
namespace {

using ::testing::Eq;

LoaderOptions batches_of(int64_t size, int workers = 0) {
  return LoaderOptions().batch_size(size).workers(workers);
}

/// What each of `ranks` ranks finds. Its dropout stays on, so that random numbers matter, too.
std::vector<Evaluation> evaluations(int ranks, int64_t samples, int workers = 0) {
  std::vector<std::shared_ptr<Classifier>> models;
  for (int rank = 0; rank < ranks; ++rank) {
    models.push_back(classifier());
  }
  std::vector<Evaluation> found(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    const ValidationLoader<Rows> loader({samples}, world.rank(), ranks, 7, batches_of(3, workers));
    auto& model = models[rank];
    const auto forward = [&](const auto& batch) {
      return model->forward(at::dropout(batch.first, 0.2, /*train=*/true));
    };
    found[rank] = evaluate(EvaluateOptions(world, at::kCPU), model, loader, forward, Accuracy(),
                           TopK(2), MeanLoss(), Perplexity(), ConfusionMatrix(3));
  });
  return found;
}

TEST(Evaluate, HasTheSameBitsOnOneToEightRanks) {
  for (const int64_t samples : {1, 5, 17, 64}) {
    const std::vector<uint64_t> expected = bits(evaluations(1, samples)[0]);
    for (int ranks = 2; ranks <= 8; ++ranks) {
      for (const Evaluation& found : evaluations(ranks, samples)) {
        EXPECT_EQ(found.samples, samples);
        EXPECT_EQ(bits(found), expected) << samples << " samples on " << ranks << " ranks";
      }
    }
  }
}

TEST(Evaluate, HasTheSameBitsWithWorkers) {
  const std::vector<uint64_t> expected = bits(evaluations(1, 32)[0]);
  EXPECT_EQ(bits(evaluations(1, 32, 3)[0]), expected);
  EXPECT_EQ(bits(evaluations(3, 32, 2)[1]), expected);
}

TEST(Evaluate, UsesEachSampleOnce) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const int64_t samples : {1, 2, 7, 8, 9, 31}) {
      run_ranks(ranks, [&](Communicator& world) {
        auto model = std::make_shared<torch::nn::LinearImpl>(1, 1);
        const ValidationLoader<OwnNumbers> loader({samples}, world.rank(), ranks, 7, batches_of(2));
        Seen seen(samples);
        const auto itself = [](const at::Tensor& batch) { return batch; };
        EXPECT_EQ(evaluate(EvaluateOptions(world, at::kCPU), model, loader, itself, seen).samples,
                  samples);
        EXPECT_THAT(seen.counts(), Each(Eq(1))) << samples << " samples on " << ranks << " ranks";
      });
    }
  }
}

TEST(Evaluate, EqualsAPlainLoop) {
  const auto model = classifier();
  const ValidationLoader<Rows> loader({41}, 0, 1, 7, batches_of(6));
  ConfusionMatrix confusion(3);
  const Evaluation found = evaluate(EvaluateOptions(Communicator::solo(), at::kCPU), model, loader,
                                    Accuracy(), MeanLoss(), Perplexity(), confusion);
  const at::NoGradGuard no_grad;
  model->eval();
  const Rows rows{41};
  double loss = 0.0;
  int64_t hits = 0;
  at::Tensor matrix = at::zeros({3, 3}, at::kLong);
  for (int64_t i = 0; i < 41; ++i) {
    const auto [x, label] = rows.get(static_cast<size_t>(i));
    const at::Tensor scores = model->forward(x.unsqueeze(0));
    const at::Tensor target = at::full({1}, label, at::kLong);
    loss += at::cross_entropy_loss(scores, target).item<double>();
    const auto predicted = scores.argmax(1).item<int64_t>();
    hits += predicted == label ? 1 : 0;
    matrix[label][predicted] += 1;
  }
  EXPECT_EQ(found.samples, 41);
  EXPECT_EQ(found["accuracy"], static_cast<double>(hits) / 41.0);
  EXPECT_NEAR(found["loss"], loss / 41.0, 1e-6);
  EXPECT_NEAR(found["perplexity"], std::exp(loss / 41.0), 1e-5);
  EXPECT_TRUE(at::equal(confusion.matrix(), matrix));
  EXPECT_EQ(found["balanced_accuracy"], confusion.value());
  EXPECT_THAT(error_of([&] { found["f1"]; }), AllOf(HasSubstr("f1"), HasSubstr("perplexity")));
  EXPECT_THAT(found.text(), AllOf(HasSubstr("accuracy 0."), HasSubstr("(41 samples)")));
}

TEST(Evaluate, RestoresModesAndGradMode) {
  const auto model = classifier();
  model->norm->eval();  // as in fine-tuning
  const std::vector<bool> before = modes(*model);
  const ValidationLoader<Rows> loader({5}, 0, 1, 7, batches_of(2));
  const EvaluateOptions options(Communicator::solo(), at::kCPU);
  const auto forward = [&](const auto& batch) {
    EXPECT_THAT(modes(*model), Each(Eq(false)));
    const at::Tensor scores = model->forward(batch.first);
    EXPECT_FALSE(scores.requires_grad());
    return scores;
  };
  evaluate(options, model, loader, forward, Accuracy());
  EXPECT_EQ(modes(*model), before);
  EXPECT_TRUE(c10::GradMode::is_enabled());
  const auto fails = [&](const auto& /*batch*/) -> at::Tensor {
    throw Error("no such file", ExitCode::data);
  };
  EXPECT_THAT(error_of([&] { evaluate(options, model, loader, fails, Accuracy()); }),
              AllOf(HasSubstr("evaluating"), HasSubstr("no such file")));
  EXPECT_EQ(modes(*model), before);
  EXPECT_TRUE(c10::GradMode::is_enabled());
}

TEST(Evaluate, AnErrorOnOneRankIsTheSameOnAll) {
  std::vector<std::shared_ptr<Classifier>> models;
  for (int rank = 0; rank < 4; ++rank) {
    models.push_back(classifier());
  }
  std::vector<std::string> messages(4);
  run_ranks(4, [&](Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    Accuracy accuracy;
    const ValidationLoader<Rows> loader({20, 9}, world.rank(), 4, 7, batches_of(2));
    try {
      evaluate(EvaluateOptions(world, at::kCPU), models[rank], loader, accuracy);
      ADD_FAILURE() << "rank " << rank << " did not throw";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::out_of_memory);
      messages[rank] = error.what();
    }
    EXPECT_THAT(accuracy.counts(), Each(Eq(0)));
    EXPECT_THAT(modes(*models[rank]), Each(Eq(true)));
  });
  EXPECT_THAT(messages[0],
              AllOf(HasSubstr("rank 0"), HasSubstr("sample 9"), HasSubstr("no memory for it")));
  EXPECT_THAT(messages, Each(Eq(messages[0])));
}

TEST(Evaluate, DoesNotMoveTheLoaderNorTheRandomNumbersOfTraining) {
  const auto model = classifier();
  Loader<Rows> loader({10}, 0, 1, 7, LoaderOptions().batch_size(4).shuffle(true).drop_last(true));
  for (auto& batch : loader) {
    (void)batch;
    break;
  }
  const SamplerPosition position = loader.position();
  at::manual_seed(3);
  const at::Tensor expected = at::rand({4});
  at::manual_seed(3);
  const auto forward = [&](const auto& batch) {
    return model->forward(batch.first + at::rand_like(batch.first));
  };
  const Evaluation found =
      evaluate(EvaluateOptions(Communicator::solo(), at::kCPU), model, loader, forward, Accuracy());
  EXPECT_EQ(found.samples, 10);
  EXPECT_EQ(loader.position(), position);
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
}

TEST(Evaluate, TakesPredictionsAndOtherBatches) {
  auto model = std::make_shared<torch::nn::LinearImpl>(1, 1);
  const ValidationLoader<OwnNumbers> loader({10}, 0, 1, 7, batches_of(4));
  const auto forward = [](const at::Tensor& numbers) {
    return Prediction{numbers.to(at::kFloat), numbers.to(at::kFloat) * 2};
  };
  const auto distance = [](const at::Tensor& output, const at::Tensor& target) {
    return (output - target).abs();
  };
  const Evaluation found = evaluate(EvaluateOptions(Communicator::solo(), at::kCPU), model, loader,
                                    forward, MeanOf("output"), MeanOf("distance", distance));
  EXPECT_EQ(found["output"], 4.5);
  EXPECT_EQ(found["distance"], 4.5);
}

TEST(Evaluate, RefusesTwoMetricsOfOneName) {
  auto model = classifier();
  const ValidationLoader<Rows> loader({3}, 0, 1, 7);
  EXPECT_THAT(error_of([&] {
                evaluate(EvaluateOptions(Communicator::solo(), at::kCPU), model, loader, Accuracy(),
                         Accuracy());
              }),
              HasSubstr("accuracy"));
}

TEST(Evaluate, RefusesOptionsWithoutMeaning) {
  const auto refusal = [](const LoaderOptions& options) {
    return error_of([&] { ValidationLoader<Rows>({3}, 0, 1, 7, options); });
  };
  EXPECT_THAT(refusal(LoaderOptions().shuffle(true)), HasSubstr("shuffle"));
  EXPECT_THAT(refusal(LoaderOptions().drop_last(true)), HasSubstr("drop_last"));
  EXPECT_THAT(refusal(LoaderOptions().epochs(2)), HasSubstr("epochs"));
  EXPECT_THAT(refusal(LoaderOptions().batch_size(0)), HasSubstr("batch_size"));
  EXPECT_THAT(error_of([] { ValidationLoader<Rows>({0}, 0, 1, 7); }), HasSubstr("empty"));
  EXPECT_THAT(error_of([] { EvaluateOptions(Communicator::solo(), at::kCPU).averaged(); }),
              HasSubstr("Trainer"));
}

}  // namespace
}  // namespace lockstep
