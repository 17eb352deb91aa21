// What O2 and O3 keep in 16 bits without a master, and what the program writes to it: buffers,
// frozen parameters, norms by name.
#include <ATen/ATen.h>
#include <lockstep/collectives/exceptions.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

std::vector<Precision> lowering_levels() {
  return {Precision::O2(at::kBFloat16),
          testing::half_precision(),
          Precision::O2(at::kBFloat16).remainders(),
          Precision::O2(at::kBFloat16).keep_batchnorm_fp32(false),
          Precision::O3(at::kBFloat16),
          Precision::O3(at::kHalf)};
}

std::vector<Precision> every_level() {
  std::vector<Precision> levels = lowering_levels();
  for (const Precision& level : {Precision::O0(), Precision::O0().wire(at::kBFloat16),
                                 Precision::O1(at::kBFloat16), Precision::O1()}) {
    levels.push_back(level);
  }
  return levels;
}

// ---- Buffers ----

/// Averages, counters, tables and times, in the dtypes that programs use.
struct OwnState : Mlp {
  OwnState() {
    average = register_buffer("average", at::zeros({3}));
    count = register_buffer("count", at::zeros({}));
    bias = register_buffer("expert_bias", at::ones({3}));
    angles = register_buffer("angles", at::pow(10000.0, -at::arange(0, 32, 2) / 32.0));
    seconds = register_buffer("seconds", at::full({}, 1.7e9 + 0.25, at::kDouble));
    for (const auto dtype : {at::kHalf, at::kBFloat16, at::kFloat8_e4m3fn, at::kFloat8_e5m2,
                             at::kInt, at::kBool, at::kComplexFloat}) {
      const std::string name = c10::toString(dtype);
      others.push_back(register_buffer("other_" + name, at::ones({3}).to(dtype)));
    }
    to(device());
  }
  /// As a program does in forward().
  void move() {
    const at::NoGradGuard no_grad;
    average.mul_(0.99).add_(at::tensor({1.0F, 2.0F, 0.5F}).to(device()), 0.01);
    count.add_(1);
    bias.add_(at::tensor({1.0F, -1.0F, 1.0F}).to(device()), 0.001);
    seconds.add_(0.125);
  }
  at::Tensor average, count, bias, angles, seconds;
  std::vector<at::Tensor> others;
};

void expect_moved(OwnState& model, int64_t times) {
  OwnState plain;
  for (int64_t i = 0; i < times; ++i) {
    plain.move();
  }
  const auto expected = plain.named_buffers();
  for (const auto& buffer : model.named_buffers()) {
    SCOPED_TRACE(buffer.key());
    EXPECT_EQ(buffer.value().scalar_type(), expected[buffer.key()].scalar_type());
    const bool is_tiny = buffer.value().element_size() == 1;
    EXPECT_TRUE(
        is_tiny ? at::equal(buffer.value().view(at::kByte), expected[buffer.key()].view(at::kByte))
                : at::equal(buffer.value(), expected[buffer.key()]));
  }
}

TEST(Buffers, HoldWhatTheProgramAddsUpAtEveryLevel) {
  constexpr int64_t kSteps = 300;  // bf16 counts to 256
  for (const Precision& level : every_level()) {
    SCOPED_TRACE(level.describe());
    const auto model = std::make_shared<OwnState>();
    Trainer trainer(runtime(), model, SGD(0.001), TrainerOptions().precision(level));
    for (int64_t step = 0; step < kSteps; ++step) {
      trainer.step([&] {
        model->move();
        return scaled_loss(*model, step % 3);
      });
    }
    expect_moved(*model, kSteps);
  }
}

TEST(Buffers, OfEveryDtypeAreAveragedSavedAndResumed) {
  for (const Precision& level : every_level()) {
    SCOPED_TRACE(level.describe());
    const auto options = TrainerOptions().precision(level).buffers(BufferPolicy::average).ema(0.5);
    const SharedFolder folder;
    const auto run = [&](int64_t steps) {
      const auto model = std::make_shared<OwnState>();
      Trainer trainer(runtime(), model, SGD(0.001), options);
      trainer.resume(folder.file("run"));
      for (int64_t step = 0; step < steps; ++step) {
        trainer.step([&] {
          model->move();
          return scaled_loss(*model, step);
        });
      }
      trainer.save();
      EXPECT_EQ(trainer.finish_saving()->error, std::nullopt);
      return model;
    };
    expect_moved(*run(4), 4);
    expect_moved(*run(3), 7);
  }
}

TEST(Buffers, InReproducibleStepsKeepTheirDtype) {
  for (const Precision& level : {Precision::O0(), Precision::O2(at::kBFloat16).wire(at::kFloat)}) {
    const auto model = std::make_shared<OwnState>();
    Trainer trainer(runtime(), model, SGD(0.001),
                    TrainerOptions().precision(level).reproducible(true));
    for (int64_t step = 0; step < 3; ++step) {
      trainer.step([&] {
        const at::NoGradGuard no_grad;
        model->move();
        const at::AutoGradMode grad(true);
        return scaled_loss(*model, step);
      });
    }
    expect_moved(*model, 3);
  }
}

/// Batch norms with and without weights.
struct Normed : Mlp {
  Normed()
      : norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        plain(register_module(
            "plain", torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(8).affine(false)))) {
    to(device());
  }
  at::Tensor normed_loss(const at::Tensor& x) {
    return second->forward(plain(norm(first(x)))).to(at::kFloat).square().mean();
  }
  torch::nn::BatchNorm1d norm, plain;
};

TEST(Buffers, StatisticsAreIn16BitsOnlyWhereTheirNormsWeightsAre) {
  for (const Precision& level : every_level()) {
    SCOPED_TRACE(level.describe());
    const auto model = std::make_shared<Normed>();
    Trainer trainer(runtime(), model, SGD(0.01), TrainerOptions().precision(level));
    for (int64_t step = 0; step < 3; ++step) {
      trainer.step([&] { return model->normed_loss(drawn({6, 4}, 7).to(device())); });
    }
    EXPECT_EQ(model->norm->running_mean.scalar_type(), model->norm->weight.scalar_type());
    EXPECT_EQ(model->norm->running_var.scalar_type(), model->norm->weight.scalar_type());
    EXPECT_EQ(model->plain->running_mean.scalar_type(), at::kFloat);
    EXPECT_EQ(model->plain->running_var.scalar_type(), at::kFloat);
  }
}

// ---- Frozen parameters ----

/// A momentum encoder: `key` follows `query`.
struct Momentum : Mlp {
  explicit Momentum(at::ScalarType given = at::kFloat)
      : key(register_module("key", torch::nn::Linear(4, 8))) {
    const at::NoGradGuard no_grad;
    key->weight.copy_(drawn({8, 4}, 21));
    key->bias.copy_(drawn({8}, 22));
    key->to(given);
    for (const at::Tensor& parameter : key->parameters()) {
      parameter.requires_grad_(false);
    }
    to(device());
  }
  torch::nn::Linear key;
};

struct Write {
  const char* name;
  std::function<void(Momentum&)> run;
};

std::vector<Write> writes() {
  const auto moved = [](Momentum& m) {
    return m.key->weight.detach() * 0.99 +
           m.first->weight.detach().to(m.key->weight.dtype()) * 0.01;
  };
  return {
      {"mul_ and add_",
       [](Momentum& m) { m.key->weight.mul_(0.99).add_(m.first->weight.detach(), 0.01); }},
      {"lerp_",
       [](Momentum& m) {
         m.key->weight.lerp_(m.first->weight.detach().to(m.key->weight.dtype()), 0.01);
       }},
      {"a view", [=](Momentum& m) { m.key->weight.view(-1).copy_(moved(m).view(-1)); }},
      {"detach()", [=](Momentum& m) { m.key->weight.detach().copy_(moved(m)); }},
      {"data()", [=](Momentum& m) { m.key->weight.data().copy_(moved(m)); }},
      {"set_data", [=](Momentum& m) { m.key->weight.set_data(moved(m)); }},
      {"all at once", [](Momentum& m) { at::_foreach_mul_(m.key->parameters(), 0.5); }},
      {"the last element", [](Momentum& m) { m.key->bias.data().view(-1)[7] += 1.0F; }},
  };
}

/// One step; the Error of a write in it or before it, else empty.
std::string error_of_step(Trainer& trainer, Momentum& model,
                          const std::function<void()>& inside = nullptr) {
  try {
    trainer.step([&] {
      if (inside) {
        const at::NoGradGuard no_grad;
        inside();
      }
      return scaled_loss(model, 1);
    });
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

const auto kNamed = AllOf(HasSubstr("frozen parameter key."), HasSubstr("keep_fp32(\"key"),
                          HasSubstr("adopt_weights()"));

TEST(FrozenParameters, ThatTheProgramMovesIn16BitsAreRefusedByName) {
  for (const Precision& level : lowering_levels()) {
    for (const Write& write : writes()) {
      for (const bool inside : {false, true}) {
        SCOPED_TRACE(c10::str(level.describe(), ", ", write.name, inside ? ", in forward" : ""));
        const auto model = std::make_shared<Momentum>();
        Trainer trainer(runtime(), model, SGD(0.01), TrainerOptions().precision(level));
        const auto move = [&] {
          const at::NoGradGuard no_grad;
          write.run(*model);
        };
        EXPECT_THAT(error_of_step(trainer, *model), IsEmpty());
        if (!inside) {
          move();
        }
        EXPECT_THAT(error_of_step(trainer, *model, inside ? move : std::function<void()>()),
                    kNamed);
        EXPECT_THAT(error_of_step(trainer, *model), kNamed);  // until adopt_weights()
      }
    }
  }
}

TEST(FrozenParameters, KeptInFp32FollowAsAtO0) {
  const auto run = [](const Precision& level, const Write& write) {
    const auto model = std::make_shared<Momentum>();
    Trainer trainer(runtime(), model, SGD(0.0), TrainerOptions().precision(level));
    for (int64_t step = 0; step < 10; ++step) {
      EXPECT_THAT(error_of_step(trainer, *model), IsEmpty());
      const at::NoGradGuard no_grad;
      model->key->weight.mul_(0.99).add_(drawn({8, 4}, 3).to(device()), 0.01);
      if (write.run) {
        write.run(*model);
      }
    }
    EXPECT_EQ(model->key->weight.scalar_type(), at::kFloat);
    return model->key->weight.clone();
  };
  const at::Tensor expected = run(Precision::O0(), {});
  EXPECT_TRUE(at::equal(run(Precision::O1(at::kBFloat16), {}), expected));
  for (const Precision& level : lowering_levels()) {
    SCOPED_TRACE(level.describe());
    EXPECT_TRUE(at::equal(run(level.keep_fp32("key"), {}), expected));
  }
  for (const Write& write : writes()) {
    run(Precision::O0(), write);
  }
}

TEST(FrozenParameters, WrittenOnOneRankAloneAreRefusedOnEveryRank) {
  for (const Write& write : writes()) {
    SCOPED_TRACE(write.name);
    const auto model = std::make_shared<Momentum>();
    Trainer trainer(runtime(), model, SGD(0.01),
                    TrainerOptions().precision(Precision::O2(at::kBFloat16)));
    EXPECT_THAT(error_of_step(trainer, *model), IsEmpty());
    if (runtime().rank() == runtime().size() - 1) {
      const at::NoGradGuard no_grad;
      write.run(*model);
    }
    EXPECT_THAT(error_of_step(trainer, *model), kNamed);
  }
}

TEST(FrozenParameters, ThatTheProgramMovesAreRefusedBySave) {
  for (const Write& write : writes()) {
    SCOPED_TRACE(write.name);
    const SharedFolder folder;
    const auto model = std::make_shared<Momentum>();
    Trainer trainer(runtime(), model, SGD(0.01),
                    TrainerOptions().precision(Precision::O2(at::kBFloat16)));
    trainer.resume(folder.file("run"));
    EXPECT_THAT(error_of_step(trainer, *model), IsEmpty());
    {
      const at::NoGradGuard no_grad;
      write.run(*model);
    }
    EXPECT_THAT(error_of([&] { trainer.save(); }), kNamed);
  }
}

TEST(FrozenParameters, WrittenThroughDataLaterAreFoundInTheWindowsThatLook) {
  const auto model = std::make_shared<Momentum>();
  Trainer trainer(runtime(), model, SGD(0.01),
                  TrainerOptions().precision(Precision::O2(at::kBFloat16)));
  int64_t found = 0;
  for (int64_t step = 1; step <= 8 && found == 0; ++step) {
    if (step > 4) {
      model->key->weight.data().mul_(1.5);
    }
    found = error_of_step(trainer, *model).empty() ? 0 : step;
  }
  EXPECT_EQ(found, 8);
}

TEST(FrozenParameters, MayBeWrittenBeforeTheFirstUpdateAndByLockstep) {
  for (const Precision& level : lowering_levels()) {
    SCOPED_TRACE(level.describe());
    const auto options = TrainerOptions().precision(level);
    const SharedFolder folder;
    const auto model = std::make_shared<Momentum>();
    Trainer trainer(runtime(), model, SGD(0.01), options);
    const auto write = [&] {
      const at::NoGradGuard no_grad;
      model->key->weight.mul_(0.5);
      model->key->bias.data().fill_(3.0);
    };
    write();
    trainer.resume(folder.file("run"));
    write();
    EXPECT_THAT(error_of_step(trainer, *model, write), IsEmpty());  // such as a first forward
    EXPECT_THAT(error_of_step(trainer, *model), IsEmpty());
    trainer.save();
    EXPECT_EQ(trainer.finish_saving()->error, std::nullopt);
    write();  // a hard copy
    trainer.adopt_weights();
    EXPECT_THAT(error_of_step(trainer, *model), IsEmpty());
    EXPECT_THAT(error_of_step(trainer, *model), IsEmpty());
    write();
    trainer.load_weights(folder.file("run"));
    EXPECT_THAT(error_of_step(trainer, *model), IsEmpty());
    EXPECT_THAT(error_of_step(trainer, *model), IsEmpty());
    write();
    EXPECT_THAT(error_of_step(trainer, *model), kNamed);
  }
}

TEST(FrozenParameters, AsTheProgramMadeThemMayBeWritten) {
  struct Case {
    at::ScalarType given;
    Precision level;
  };
  for (const auto& [given, level] :
       {Case{at::kBFloat16, Precision::O2(at::kBFloat16)},
        Case{at::kHalf, Precision::O3(at::kHalf)}, Case{at::kDouble, Precision::O2(at::kBFloat16)},
        Case{at::kDouble, Precision::O0()}, Case{at::kDouble, Precision::O1()},
        Case{at::kFloat8_e4m3fn, Precision::O2(at::kBFloat16)},
        Case{at::kFloat8_e5m2, Precision::O0()}}) {
    SCOPED_TRACE(c10::str(given, " at ", level.describe()));
    const auto model = std::make_shared<Momentum>(given);
    Trainer trainer(runtime(), model, SGD(0.01), TrainerOptions().precision(level));
    EXPECT_EQ(model->key->weight.scalar_type(), given);
    for (int64_t step = 0; step < 3; ++step) {
      EXPECT_THAT(error_of_step(trainer, *model), IsEmpty());
      const at::NoGradGuard no_grad;
      model->key->weight.copy_(drawn({8, 4}, static_cast<uint64_t>(step)).to(device()));
    }
    EXPECT_TRUE(at::equal(model->key->weight.to(at::kFloat),
                          drawn({8, 4}, 2).to(device()).to(given).to(at::kFloat)));
  }
}

TEST(FrozenParameters, FrozenLaterAreWatchedAndThawedOnesAreNot) {
  const auto model = std::make_shared<Momentum>();
  Trainer trainer(runtime(), model, SGD(0.01),
                  TrainerOptions().precision(Precision::O2(at::kBFloat16)));
  EXPECT_THAT(error_of_step(trainer, *model), IsEmpty());
  model->first->weight.requires_grad_(false);
  trainer.adopt_trainable();
  EXPECT_THAT(error_of_step(trainer, *model), IsEmpty());
  EXPECT_THAT(error_of_step(trainer, *model), IsEmpty());
  {
    const at::NoGradGuard no_grad;
    model->first->weight.mul_(0.99);
  }
  EXPECT_THAT(error_of_step(trainer, *model),
              AllOf(HasSubstr("frozen parameter first.weight"), HasSubstr("keep_fp32")));
  trainer.adopt_weights();
  model->first->weight.requires_grad_(true);
  trainer.adopt_trainable();
  for (int64_t step = 0; step < 3; ++step) {
    EXPECT_THAT(error_of_step(trainer, *model), IsEmpty());
  }
}

TEST(TrainedParameters, InFp8AreRefusedByName) {
  const auto model = std::make_shared<Mlp>();
  model->register_parameter("tiny", at::ones({4}).to(at::kFloat8_e5m2).to(device()));
  EXPECT_THAT(error_of([&] { Trainer(runtime(), model, SGD(0.1)); }),
              AllOf(HasSubstr("parameter tiny"), HasSubstr("can be trained")));
}

// ---- Norms ----

/// Named like no norm, in several classes.
struct SkipScalerImpl : torch::nn::Module {
  SkipScalerImpl() {
    weight = register_parameter("weight", at::ones({8}));
    offset = register_parameter("offset", at::zeros({8}));
  }
  at::Tensor forward(const at::Tensor& x) { return at::layer_norm(x, {8}, weight, offset); }
  at::Tensor weight, offset;
};
TORCH_MODULE(SkipScaler);

struct LayerNormMLPImpl : torch::nn::Module {
  LayerNormMLPImpl() {
    layer_norm_weight = register_parameter("layer_norm_weight", at::ones({8}));
    fc = register_module("fc", torch::nn::Linear(8, 8));
  }
  at::Tensor forward(const at::Tensor& x) {
    return fc(at::layer_norm(x, {8}, layer_norm_weight.view({8})));
  }
  at::Tensor layer_norm_weight;
  torch::nn::Linear fc{nullptr};
};
TORCH_MODULE(LayerNormMLP);

struct OddNorms : Mlp {
  OddNorms()
      : skip(register_module("skip", SkipScaler())),
        mlp(register_module("mlp", LayerNormMLP())),
        known(register_module("known", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})))) {
    to(device());
  }
  at::Tensor odd_loss() {
    const at::Tensor x = first(drawn({6, 4}, 7).to(device()));
    return second->forward(known(mlp(skip(x)))).to(at::kFloat).square().mean();
  }
  SkipScaler skip;
  LayerNormMLP mlp;
  torch::nn::LayerNorm known;
};

/// What a Trainer prints on standard error in three steps, on this rank.
std::string printed(const std::shared_ptr<OddNorms>& model, const Precision& level) {
  Trainer trainer(runtime(), model, SGD(0.01), TrainerOptions().precision(level));
  ::testing::internal::CaptureStderr();
  for (int64_t step = 0; step < 3; ++step) {
    trainer.step([&] { return model->odd_loss(); });
  }
  return ::testing::internal::GetCapturedStderr();
}

TEST(Norms, OfTheProgramsListStayInFp32) {
  const auto model = std::make_shared<OddNorms>();
  const Trainer trainer(
      runtime(), model, SGD(0.01),
      TrainerOptions().precision(
          Precision::O2(at::kBFloat16).norms("SkipScaler").norms("layer_norm_weight")));
  EXPECT_EQ(model->skip->weight.scalar_type(), at::kFloat);
  EXPECT_EQ(model->skip->offset.scalar_type(), at::kFloat);
  EXPECT_EQ(model->mlp->layer_norm_weight.scalar_type(), at::kFloat);
  EXPECT_EQ(model->mlp->fc->weight.scalar_type(), at::kBFloat16);
  EXPECT_EQ(model->known->weight.scalar_type(), at::kFloat);
  EXPECT_EQ(model->first->weight.scalar_type(), at::kBFloat16);
}

TEST(Norms, OfTheProgramsListDoNotDecay) {
  for (const Precision& level : {Precision::O0(), Precision::O2(at::kBFloat16)}) {
    const auto model = std::make_shared<OddNorms>();
    Trainer trainer(runtime(), model, SGD(0.5).weight_decay(1.0).no_decay_on_norms_and_biases(),
                    TrainerOptions().precision(level.norms("skip").norms("LayerNormMLP")));
    trainer.step([&] {
      at::Tensor nothing = at::zeros({}, device());
      for (const at::Tensor& parameter : model->parameters()) {
        nothing = nothing + 0.0 * parameter.to(at::kFloat).sum();
      }
      return nothing;
    });
    EXPECT_TRUE(at::equal(model->skip->weight.to(at::kFloat), at::ones({8}, device())));
    EXPECT_TRUE(at::equal(model->mlp->layer_norm_weight.to(at::kFloat), at::ones({8}, device())));
    EXPECT_LT(model->mlp->fc->weight.abs().max().item<double>(), 0.2);  // half of it is gone
  }
}

TEST(Norms, ThatNothingKnowsAreNamedOnceByTheMainRank) {
  const std::string said = printed(std::make_shared<OddNorms>(), Precision::O2(at::kBFloat16));
  if (!runtime().is_main()) {
    EXPECT_THAT(said, Not(HasSubstr("norm")));
    return;
  }
  EXPECT_THAT(said, AllOf(HasSubstr("skip.weight of class SkipScaler"), HasSubstr("skip.offset"),
                          HasSubstr("mlp.layer_norm_weight"),
                          HasSubstr("Precision::norms(\"SkipScaler\")"), Not(HasSubstr("known"))));
  EXPECT_EQ(said.find("skip.weight of class"), said.rfind("skip.weight of class"));
}

TEST(Norms, ThatAreKnownOrNotIn16BitsAreNotNamed) {
  const Precision o2 = Precision::O2(at::kBFloat16);
  for (const Precision& level :
       {Precision::O0(), Precision::O1(at::kBFloat16), Precision::O3(at::kBFloat16),
        o2.keep_batchnorm_fp32(false), o2.norms("SkipScaler").norms("mlp.layer_norm_weight"),
        o2.keep_fp32("skip").keep_fp32("layer_norm_weight")}) {
    SCOPED_TRACE(level.describe());
    EXPECT_THAT(printed(std::make_shared<OddNorms>(), level), Not(HasSubstr("norm")));
  }
}

TEST(Norms, OfNoNameAreRefusedOnEveryRank) {
  EXPECT_THAT(error_of([&] {
                Trainer(runtime(), std::make_shared<OddNorms>(), SGD(0.1),
                        TrainerOptions().precision(Precision::O2().norms("SkipScalar")));
              }),
              AllOf(HasSubstr("norms(\"SkipScalar\")"), HasSubstr("SkipScaler")));
}

// ---- Summary ----

TEST(Summary, ListsWhatHas16BitsAndWhichClassesAreNorms) {
  struct All : OddNorms {
    All() : norm(register_module("norm", torch::nn::BatchNorm1d(8))) {
      for (const at::Tensor& parameter : mlp->parameters()) {
        parameter.requires_grad_(false);
      }
      register_parameter("given", at::ones({3}, at::kBFloat16), /*requires_grad=*/false);
      register_buffer("queue", at::ones({3}, at::kHalf));
      register_buffer("average", at::ones({3}));
    }
    torch::nn::BatchNorm1d norm;
  };
  const auto summary = [](const Precision& level) {
    const auto model = std::make_shared<All>();
    return Trainer(runtime(), model, SGD(0.1), TrainerOptions().precision(level)).summary();
  };
  if (!runtime().is_main()) {
    summary(Precision::O2(at::kBFloat16));
    summary(Precision::O3(at::kBFloat16));
    summary(Precision::O0());
    return;
  }
  EXPECT_THAT(
      summary(Precision::O2(at::kBFloat16)),
      AllOf(HasSubstr("16 bits    6 trained parameters (first.weight, first.bias, ...), with fp32 "
                      "masters; 3 frozen parameters (mlp.layer_norm_weight, mlp.fc.weight, ...), "
                      "lowered: not to be written; 1 frozen parameter (given), as given; 1 buffer "
                      "(queue), as given\n"),
            HasSubstr("norms      2 parameters of BatchNorm1d, 2 of LayerNorm\n")));
  EXPECT_THAT(summary(Precision::O3(at::kBFloat16)),
              HasSubstr("2 buffers (norm.running_mean, norm.running_var), as the norms' weights"));
  EXPECT_THAT(summary(Precision::O0()),
              AllOf(HasSubstr("16 bits    1 buffer (queue)"), HasSubstr("norms      ")));
}

}  // namespace
}  // namespace lockstep
