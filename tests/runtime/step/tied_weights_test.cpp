// Weights tied as every LibTorch program ties them: decoder->weight = encoder->weight.
#include <lockstep/runtime/data_parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/serialize.h>

#include <sstream>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// A language model without a recurrence. Its decoder uses the weight of the encoder, as `Tie` has
/// it.
template <typename Tie>
struct WordLm : torch::nn::Module {
  WordLm() {
    encoder = register_module("encoder", torch::nn::Embedding(20, 8));
    decoder = register_module("decoder", torch::nn::Linear(8, 20));
    Tie::tie(*this);
    to(testing::device());
  }
  at::Tensor forward(const at::Tensor& words) {
    return decoder->forward(at::tanh(encoder->forward(words)));
  }
  torch::nn::Embedding encoder{nullptr};
  torch::nn::Linear decoder{nullptr};
};

struct Assigned {
  template <typename Model>
  static void tie(Model& model) {
    model.decoder->weight = model.encoder->weight;
  }
};
struct NotTied {
  template <typename Model>
  static void tie(Model&) {}
};
struct SharedData {
  template <typename Model>
  static void tie(Model& model) {
    model.decoder->weight.set_data(model.encoder->weight.data());
  }
};

/// The same function, written so that nothing needs to be tied.
struct Functional : torch::nn::Module {
  Functional() {
    encoder = register_module("encoder", torch::nn::Embedding(20, 8));
    bias = register_parameter("bias", torch::nn::Linear(8, 20)->bias.detach());
    to(testing::device());
  }
  at::Tensor forward(const at::Tensor& words) {
    return at::linear(at::tanh(encoder->forward(words)), encoder->weight, bias);
  }
  torch::nn::Embedding encoder{nullptr};
  at::Tensor bias;
};

/// A GPT's ends: the head is registered first, and has no bias.
struct Gpt : torch::nn::Module {
  Gpt() {
    head = register_module("head", torch::nn::Linear(torch::nn::LinearOptions(8, 20).bias(false)));
    tokens = register_module("tokens", torch::nn::Embedding(20, 8));
    head->weight = tokens->weight;
    to(testing::device());
  }
  at::Tensor forward(const at::Tensor& words) {
    return head->forward(at::tanh(tokens->forward(words)));
  }
  torch::nn::Linear head{nullptr};
  torch::nn::Embedding tokens{nullptr};
};

template <typename Model>
std::shared_ptr<Model> made() {
  at::manual_seed(7);
  return std::make_shared<Model>();
}

template <typename Model>
Loss words_loss(Model& model, int64_t step) {
  const at::Tensor words =
      (drawn({12}, static_cast<uint64_t>(step * 64 + runtime().rank())).abs() * 9)
          .to(at::kLong)
          .clamp_max(19);
  return torch::nn::functional::cross_entropy(model.forward(words).to(at::kFloat),
                                              (words + 1).remainder(20));
}

/// Steps [begin, end).
template <typename Model>
void train(Trainer& trainer, Model& model, int64_t begin, int64_t end) {
  for (int64_t step = begin; step < end; ++step) {
    trainer.step([&] { return words_loss(model, step); });
  }
}

std::vector<std::string> master_names(const Trainer& trainer) {
  std::vector<std::string> names;
  for (const auto& master : trainer.masters()) {
    names.push_back(master.first);
  }
  return names;
}

TrainerOptions options(const Precision& precision, bool sharded = false) {
  return TrainerOptions().precision(precision).shard_optimizer(sharded);
}

TEST(TiedWeights, WeightsTiedByAssignmentAreOneParameter) {
  for (const Precision& precision : {Precision::O0(), testing::half_precision()}) {
    for (const bool sharded : {false, true}) {
      const auto tied = made<WordLm<Assigned>>();
      const auto functional = made<Functional>();
      {
        const at::NoGradGuard no_grad;
        functional->bias.copy_(tied->decoder->bias);
        functional->encoder->weight.copy_(tied->encoder->weight);
      }
      Trainer trainer(runtime(), tied, AdamW(1e-2), options(precision, sharded));
      Trainer other(runtime(), functional, AdamW(1e-2), options(precision, sharded));
      train(trainer, *tied, 0, 6);
      train(other, *functional, 0, 6);
      EXPECT_THAT(master_names(trainer), ::testing::ElementsAre("encoder.weight", "decoder.bias"));
      EXPECT_EQ(trainer.updates(), 6);
      const auto ours = trainer.masters();
      const auto theirs = other.masters();
      EXPECT_TRUE(at::equal(ours[0].second, theirs[1].second)) << precision.describe() << sharded;
      EXPECT_TRUE(at::equal(ours[1].second, theirs[0].second)) << precision.describe() << sharded;
      EXPECT_TRUE(trainer.replicas_agree());
    }
  }
}

TEST(TiedWeights, WhatIsRegisteredUnderTheOtherNameShowsTheTiedWeight) {
  for (const Precision& precision : {Precision::O0(), testing::half_precision()}) {
    const auto model = made<Gpt>();
    Trainer trainer(runtime(), model, AdamW(1e-2), options(precision));
    EXPECT_THAT(master_names(trainer), ::testing::ElementsAre("head.weight"));
    train(trainer, *model, 0, 3);
    const auto registered = model->named_parameters();
    EXPECT_TRUE(at::equal(registered["head.weight"], registered["tokens.weight"]));
    EXPECT_EQ(registered["head.weight"].scalar_type(), model->tokens->weight.scalar_type());
    EXPECT_TRUE(at::equal(model->head->weight, registered["head.weight"]));
    EXPECT_TRUE(model->head->weight.is_same(model->tokens->weight));
    if (precision.level() == Precision::Level::O0) {
      std::stringstream archive;
      torch::save(std::static_pointer_cast<torch::nn::Module>(model), archive);
      auto untied = std::make_shared<torch::nn::Module>();
      const torch::nn::Linear head(torch::nn::LinearOptions(8, 20).bias(false));
      untied->register_module("head", head);
      untied->register_module("tokens", torch::nn::Embedding(20, 8));
      torch::load(untied, archive);
      EXPECT_TRUE(at::equal(head->weight, model->tokens->weight));
    }
  }
}

TEST(TiedWeights, ATiedModelIsSavedUnderAllNamesAndResumes) {
  for (const Precision& precision : {Precision::O0(), testing::half_precision()}) {
    for (const bool sharded : {false, true}) {
      const testing::SharedFolder folder;
      const auto saved_options =
          options(precision, sharded).snapshots(SnapshotOptions().folder(folder.file("run")));
      const auto whole = made<WordLm<Assigned>>();
      at::Tensor end;
      at::Tensor weight;
      {
        Trainer trainer(runtime(), whole, AdamW(1e-2), saved_options);
        train(trainer, *whole, 0, 3);
        trainer.save();
        trainer.finish_saving();
        weight = trainer.masters()[0].second.clone();
        train(trainer, *whole, 3, 6);
        end = flat_masters(trainer);
      }
      const Snapshot saved(testing::step_path(folder.file("run"), 3));
      const auto section = saved.section("model");
      EXPECT_TRUE(at::equal(section.read("encoder.weight"), weight.cpu()));
      EXPECT_TRUE(at::equal(section.read("decoder.weight"), weight.cpu()));

      const auto again = made<WordLm<Assigned>>();
      Trainer trainer(runtime(), again, AdamW(1e-2), saved_options);
      EXPECT_TRUE(trainer.resume().resumed);
      train(trainer, *again, 3, 6);
      EXPECT_TRUE(at::equal(flat_masters(trainer), end)) << precision.describe() << sharded;

      const auto tuned = made<WordLm<Assigned>>();
      Trainer fine(runtime(), tuned, AdamW(1e-2), options(precision, sharded));
      EXPECT_TRUE(fine.load_weights(testing::step_path(folder.file("run"), 3)).is_complete());
      EXPECT_TRUE(at::equal(fine.masters()[0].second, weight));
      EXPECT_TRUE(at::equal(tuned->named_parameters()["decoder.weight"].to(at::kFloat),
                            weight.to(tuned->encoder->weight.scalar_type()).to(at::kFloat)));
    }
  }
}

/// What resume() of a run with `Saved` says to a model with `Now`. SGD has no moments whose names
/// would tell the models apart.
template <typename Saved, typename Now>
std::string refusal_of_resume() {
  const testing::SharedFolder folder;
  const auto saved_in = TrainerOptions().snapshots(SnapshotOptions().folder(folder.file("run")));
  {
    const auto model = made<WordLm<Saved>>();
    Trainer trainer(runtime(), model, SGD(0.1), saved_in);
    train(trainer, *model, 0, 1);
    trainer.save();
  }
  testing::meet();
  const auto model = made<WordLm<Now>>();
  Trainer trainer(runtime(), model, SGD(0.1), saved_in);
  const at::Tensor before = flat_masters(trainer).clone();
  const std::string error = error_of([&] { trainer.resume(); });
  EXPECT_TRUE(at::equal(flat_masters(trainer), before)) << "nothing is loaded";
  return error;
}

TEST(TiedWeights, ARunResumesOnlyWithTheTiesOfTheSavedModel) {
  EXPECT_THAT((refusal_of_resume<NotTied, Assigned>()),
              HasSubstr("decoder.weight and encoder.weight: one weight here, two there"));
  EXPECT_THAT((refusal_of_resume<Assigned, NotTied>()),
              HasSubstr("decoder.weight and encoder.weight: one weight there, two here"));
}

TEST(TiedWeights, AHandLoopWithTiedWeightsStepsThemOnce) {
  const auto tied = made<WordLm<Assigned>>();
  const auto functional = made<Functional>();
  {
    const at::NoGradGuard no_grad;
    functional->bias.copy_(tied->decoder->bias);
    functional->encoder->weight.copy_(tied->encoder->weight);
  }
  const auto train_by_hand = [](torch::nn::Module& module, const auto& model) {
    DataParallel parallel(runtime().communicator(), model);
    for (int64_t step = 0; step < 3; ++step) {
      testing::clear_gradients(module);
      words_loss(*model, step).tensor().backward();
      parallel.finish();
      const at::NoGradGuard no_grad;
      for (const at::Tensor& parameter : module.parameters()) {
        if (parameter.grad().defined()) {
          parameter.sub_(parameter.grad(), 0.1);
        }
      }
    }
  };
  train_by_hand(*tied, tied);
  train_by_hand(*functional, functional);
  EXPECT_TRUE(at::equal(tied->encoder->weight, functional->encoder->weight));
  EXPECT_TRUE(at::equal(tied->decoder->bias, functional->bias));
  const auto registered = tied->named_parameters();
  EXPECT_TRUE(at::equal(registered["decoder.weight"], tied->encoder->weight));
}

TEST(TiedWeights, SharedDataIsRefusedWithAdviceThatHolds) {
  const std::string message =
      error_of([] { Trainer trainer(runtime(), made<WordLm<SharedData>>(), AdamW(1e-2)); });
  EXPECT_THAT(message, HasSubstr("'encoder.weight' and 'decoder.weight'"));
  EXPECT_THAT(message, HasSubstr("decoder->weight = encoder->weight"));
  EXPECT_THAT(message, Not(HasSubstr("register_parameter")));
  const auto model = made<WordLm<Assigned>>();  // the advice
  Trainer trainer(runtime(), model, AdamW(1e-2));
  train(trainer, *model, 0, 2);
  EXPECT_EQ(trainer.updates(), 2);
}

/// A module of the program's own, which no library can look into.
struct OwnDecoder : torch::nn::Module {
  OwnDecoder(const torch::nn::Embedding& encoder, bool registers) {
    register_module("encoder", encoder);
    if (registers) {
      projection = register_parameter("projection", at::ones({20, 8}));
    }
    projection = encoder->weight;
    words = encoder;
    to(testing::device());
  }
  at::Tensor forward(const at::Tensor& x) { return at::linear(words->forward(x), projection); }
  at::Tensor projection;
  torch::nn::Embedding words{nullptr};
};

TEST(TiedWeights, AnUnusedParameterOfAnUnknownModuleIsAskedAbout) {
  at::manual_seed(7);
  {
    const auto model = std::make_shared<OwnDecoder>(torch::nn::Embedding(20, 8), true);
    Trainer trainer(runtime(), model, AdamW(1e-2));
    const std::string message = error_of([&] { train(trainer, *model, 0, 1); });
    EXPECT_THAT(message, HasSubstr("no gradient in this update: projection"));
    EXPECT_THAT(message, HasSubstr("is another tensor used in its place"));
    EXPECT_THAT(message, HasSubstr("do not register the one that is not used"));
  }
  const auto model = std::make_shared<OwnDecoder>(torch::nn::Embedding(20, 8), false);
  Trainer trainer(runtime(), model, AdamW(1e-2));
  train(trainer, *model, 0, 2);
  EXPECT_EQ(trainer.updates(), 2);
}

}  // namespace
}  // namespace lockstep
