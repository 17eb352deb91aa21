// Weights that leave the Trainer's memory, and models that change after the Trainer was made.
#include <lockstep/amp/impl/kept_fp32.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <sstream>

#include "error_of.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// What was saved elsewhere: other weights, the same on every rank.
std::shared_ptr<Mlp> pretrained() {
  at::manual_seed(91);
  return std::make_shared<Mlp>();
}

void load_with_torch(const std::shared_ptr<Mlp>& model) {
  std::stringstream file;
  torch::save(std::shared_ptr<torch::nn::Module>(pretrained()), file);
  std::shared_ptr<torch::nn::Module> module = model;
  torch::load(module, file);
}

const std::vector<Precision>& precisions() {
  static const std::vector<Precision> all = {Precision::O0(), Precision::O2(at::kBFloat16),
                                             Precision::O2(at::kBFloat16).remainders(),
                                             Precision::O3(at::kBFloat16)};
  return all;
}

/// What must hold once the model's weights are `expected`: it trains again, from these.
void expect_trains_from(const at::Tensor& expected, const std::shared_ptr<Mlp>& model,
                        Trainer& trainer, const Precision& precision) {
  const bool exact = precision.level() != Precision::Level::O3;
  EXPECT_TRUE(at::equal(flat_masters(trainer),
                        exact ? expected : expected.to(at::kBFloat16).to(at::kFloat)))
      << precision.describe();
  EXPECT_TRUE(is_cast_of_masters(*model, trainer));
  EXPECT_TRUE(trainer.replicas_agree());
  const double first = trainer.step([&] { return scaled_loss(*model, 7); }).loss();
  double last = first;
  for (int i = 0; i < 20; ++i) {
    last = trainer.step([&] { return scaled_loss(*model, 7); }).loss();
  }
  EXPECT_LT(last, first);
  EXPECT_TRUE(is_cast_of_masters(*model, trainer));
}

TEST(ModelWatch, TorchLoadIntoATrainedModelIsNamed) {
  for (const Precision& precision : precisions()) {
    for (const bool shard : {false, true}) {
      const auto model = std::make_shared<Mlp>();
      Trainer trainer(runtime(), model, SGD(0.1),
                      TrainerOptions().precision(precision).shard_optimizer(shard));
      trainer.step([&] { return scaled_loss(*model, 0); });
      const at::Tensor before = flat_masters(trainer);
      load_with_torch(model);
      for (int i = 0; i < 2; ++i) {
        EXPECT_THAT(error_of([&] { trainer.step([&] { return scaled_loss(*model, 1); }); }),
                    AllOf(HasSubstr("parameter first.weight left the Trainer's memory"),
                          HasSubstr(c10::str("it is ", model->first->weight.scalar_type(),
                                             " of sizes [8, 4]")),
                          HasSubstr("Call trainer.adopt_weights() on every rank"),
                          HasSubstr("trainer.load_weights(path)")));
      }
      EXPECT_TRUE(at::equal(flat_masters(trainer), before));
      EXPECT_FALSE(trainer.replicas_agree());
      EXPECT_THAT(error_of([&] { trainer.save(); }), HasSubstr("parameter first.weight left"));
      EXPECT_THAT(error_of([&] { trainer.load_weights("/nowhere"); }),
                  HasSubstr("parameter first.weight left"));
      if (precision.level() != Precision::Level::O0) {
        // LibTorch left them 16-bit tensors, over memory with fp32 values.
        EXPECT_THAT(error_of([&] { trainer.adopt_weights(); }),
                    AllOf(HasSubstr("first.weight is a tensor of BFloat16 over memory"),
                          HasSubstr("Call model->to(torch::kFloat) before torch::load")));
        model->to(at::kFloat);
        load_with_torch(model);
      }
      trainer.adopt_weights();
      expect_trains_from(flat(pretrained()->parameters()), model, trainer, precision);
    }
  }
}

TEST(ModelWatch, AModelConvertedAndBackIsNamedAndKeepsItsMasters) {
  for (const Precision& precision : precisions()) {
    for (const auto dtype : {at::kDouble, at::kFloat}) {
      const auto model = std::make_shared<Mlp>();
      Trainer trainer(runtime(), model, AdamW(1e-2), TrainerOptions().precision(precision));
      trainer.step([&] { return scaled_loss(*model, 0); });
      const at::Tensor before = flat_masters(trainer);
      const c10::ScalarType own = model->first->weight.scalar_type();
      model->to(dtype);
      if (own != dtype) {  // else nothing happened
        EXPECT_THAT(error_of([&] { trainer.step([&] { return scaled_loss(*model, 1); }); }),
                    HasSubstr(c10::str("it is ", dtype, " of sizes [8, 4]")));
        model->to(own);
        EXPECT_THAT(error_of([&] { trainer.step([&] { return scaled_loss(*model, 1); }); }),
                    HasSubstr(c10::str("it is ", own, " of sizes [8, 4]")));
      }
      trainer.adopt_weights();
      expect_trains_from(before, model, trainer, precision);
    }
  }
}

TEST(ModelWatch, OneRanksParameterIsNamedOnEveryRank) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().accumulate(2));
  const bool last = runtime().rank() == runtime().size() - 1;
  const auto window = [&] {
    for (int64_t k = 0; k < 2; ++k) {
      trainer.step([&] { return scaled_loss(*model, k); });
    }
  };
  window();
  if (last) {
    model->second->bias.set_data(model->second->bias.detach().clone());
  }
  EXPECT_THAT(error_of(window), HasSubstr("parameter second.bias left the Trainer's memory"));
  EXPECT_FALSE(trainer.replicas_agree());
  trainer.adopt_weights();
  window();
  EXPECT_EQ(trainer.updates(), 2);
  EXPECT_TRUE(trainer.replicas_agree());
}

TEST(ModelWatch, WeightsThatLeaveInTheClosureMoveNothing) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  const at::Tensor before = flat_masters(trainer);
  const auto converting = [&]() -> Loss {
    model->to(at::kDouble);  // for an evaluation, say
    model->to(at::kFloat);
    return scaled_loss(*model, 0);
  };
  EXPECT_THAT(error_of([&] { trainer.step(converting); }),
              HasSubstr("parameter first.weight left the Trainer's memory"));
  EXPECT_TRUE(at::equal(flat_masters(trainer), before));
  EXPECT_EQ(trainer.updates(), 0);
}

TEST(ModelWatch, RanksThatAdoptDifferentWeightsAreNamed) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  const at::Tensor before = flat_masters(trainer).clone();
  load_with_torch(model);
  if (runtime().rank() == 1) {
    const at::NoGradGuard no_grad;
    model->first->bias[3] += 1.0;
  }
  try {
    trainer.adopt_weights();
    ADD_FAILURE() << "different weights were adopted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::diverged);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("first in first.bias (1 of 4 arrays)"),
                                    HasSubstr("Give the model the same weights on every rank")));
    EXPECT_THAT(error.what(),
                HasSubstr(runtime().size() == 2 ? "ranks 0 and 1 hold different bits"
                                                : c10::str("rank 1 holds other bits than the ",
                                                           runtime().size() - 1, " others")));
  }
  EXPECT_TRUE(at::equal(flat_masters(trainer), before));
  load_with_torch(model);
  trainer.adopt_weights();
  EXPECT_TRUE(at::equal(flat_masters(trainer), flat(pretrained()->parameters())));
}

TEST(ModelWatch, WeightsOfAnotherSizeAreRefused) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  model->second->bias.set_data(testing::zeros({5}));
  EXPECT_THAT(error_of([&] { trainer.adopt_weights(); }),
              HasSubstr("parameter second.bias has sizes [5], the Trainer trains [2]"));
}

TEST(ModelWatch, AdoptedLayersAreStillComputedInFp32) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1),
                  TrainerOptions().precision(Precision::O2(at::kBFloat16).keep_fp32("second")));
  model->to(at::kFloat);
  load_with_torch(model);
  model->second->weight.set_data(testing::ones({2, 8}));
  ASSERT_FALSE(amp::computes_in_fp32(model->second->weight));
  trainer.adopt_weights();
  EXPECT_TRUE(amp::computes_in_fp32(model->second->weight));
  EXPECT_FALSE(amp::computes_in_fp32(model->first->weight));
  EXPECT_EQ(model->first->weight.scalar_type(), at::kBFloat16);
}

TEST(ModelWatch, ALayerAddedAfterConstructionIsNamed) {
  const auto model = std::make_shared<Mlp>();
  {
    Trainer trainer(runtime(), model, SGD(0.1));
    model->second->register_module("late", torch::nn::Linear(1, 1));
    EXPECT_THAT(error_of([&] { trainer.step([&] { return scaled_loss(*model, 0); }); }),
                AllOf(HasSubstr("parameter second.late.weight came to the model after the Trainer"),
                      HasSubstr("Build the whole model first")));
    EXPECT_EQ(trainer.updates(), 0);
  }
  Trainer trainer(runtime(), model, SGD(0.1),
                  TrainerOptions().unused(UnusedParameters::zeros).compare_replicas_every(5));
  trainer.step([&] { return scaled_loss(*model, 0); });
  model->register_parameter("extra", at::ones({3}));
  const auto some = [&] {
    for (int i = 0; i < 5; ++i) {
      trainer.step([&] { return scaled_loss(*model, 0); });
    }
  };
  EXPECT_THAT(error_of(some), HasSubstr("parameter extra came to the model"));
}

TEST(ModelWatch, ATypoInKeepFp32IsAnError) {
  const auto model = std::make_shared<Mlp>();
  const auto refusal = [&](const Precision& precision) {
    return error_of(
        [&] { Trainer(runtime(), model, SGD(0.1), TrainerOptions().precision(precision)); });
  };
  for (const Precision& precision : {Precision::O0(), Precision::O2()}) {
    EXPECT_THAT(refusal(precision.keep_fp32("frist")),
                AllOf(HasSubstr("keep_fp32(\"frist\") names no parameter and no buffer"),
                      HasSubstr("the nearest names are \"first\",")));
    EXPECT_THAT(refusal(precision.keep_fp32("first").keep_fp32("second.wieght")),
                AllOf(HasSubstr("keep_fp32(\"second.wieght\")"),
                      HasSubstr("the nearest names are \"second.weight\",")));
    EXPECT_THAT(refusal(precision.keep_fp32("irst")), HasSubstr("\"first\""));
  }
  Trainer(runtime(), model, SGD(0.1),
          TrainerOptions().precision(Precision::O2().keep_fp32("first").keep_fp32("weight")));
}

}  // namespace
}  // namespace lockstep
