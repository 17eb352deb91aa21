// Models and parameters in fp64 on one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/safetensors_file.h>
#include <lockstep/runtime/evaluate.h>
#include <lockstep/runtime/step/impl/trainable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cstdlib>
#include <limits>

#include "double_models.h"
#include "error_of.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"
#include "test_runtime.h"

namespace lockstep {
namespace {

constexpr int kSteps = 20;
const std::vector<std::vector<int64_t>> kSizes = {{3}, {5, 7}, {1100}};

/// What double_python.py wrote.
struct Python {
  Python() : file(LOCKSTEP_DOUBLE_PYTHON) {}
  std::vector<at::Tensor> tensors(const std::string& name) const {
    std::vector<at::Tensor> result;
    while (file.find(name + "." + std::to_string(result.size())) != nullptr) {
      result.push_back(file.tensor(name + "." + std::to_string(result.size())));
    }
    return result;
  }
  snapshot::SafetensorsFile file;
};

Runtime one_rank() {
  return solo_runtime(RuntimeOptions().threads(1));
}

/// Trains `model` on the gradients of `kSteps` steps.
void train(Trainer& trainer, const Weights& model, int steps = kSteps, int first = 0) {
  for (int step = first; step < first + steps; ++step) {
    trainer.step([&] { return model.loss(doubles(kSizes, 1 + step)); });
  }
}

TorchOptimizer torch_adamw(double lr, double decay) {
  return TorchOptimizer([=](std::vector<at::Tensor> masters) {
    return std::make_unique<torch::optim::AdamW>(
        std::move(masters), torch::optim::AdamWOptions(lr).weight_decay(decay));
  });
}

/// The largest difference, relative to the largest number.
double distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double result = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const at::Tensor apart = (a[i] - b[i]).abs().max() / b[i].abs().max();
    result = std::max(result, apart.item<double>());
  }
  return result;
}

struct Followed {
  std::vector<at::Tensor> weights, averages;
};

/// The steps of double_python.py.
Followed follow(const Python& python, const OptimizerSpec& optimizer) {
  const auto model = std::make_shared<Weights>(python.tensors("start"));
  Runtime runtime = one_rank();
  Trainer trainer(runtime, model, optimizer, TrainerOptions().ema(0.9));
  for (int step = 0; step < kSteps; ++step) {
    const auto gradients = python.tensors("gradient." + std::to_string(step));
    trainer.step([&] { return model->loss(gradients); });
  }
  EXPECT_EQ(trainer.updates(), kSteps);
  EXPECT_EQ(trainer.memory().masters, 0);
  return {model->values(), values(trainer.averaged())};
}

bool is_odd(const ModelTensor& parameter) {
  return std::stoi(parameter.name.substr(1)) % 2 == 1;
}

TEST(DoubleParameters, HaveTheBitsOfTorchOptim) {
  // LibTorch fuses products and sums, as lockstep does, on processors that can.
  const bool fuses = at::get_cpu_capability() != "DEFAULT";
  const auto same = [&](const auto& ours, const auto& pythons) {
    return fuses ? equal(ours, pythons) : distance(ours, pythons) < 1e-14;
  };
  const Python python;
  const std::vector<std::pair<std::string, std::shared_ptr<OptimizerSpec>>> cases = {
      {"adamw", AdamW(1e-2).weight_decay(0.1).clone()},
      {"adamw_fast", AdamW(1e-2).beta1(0.3).beta2(0.95).eps(1e-4).weight_decay(0.0).clone()},
      {"adam", Adam(1e-2).weight_decay(0.05).clone()},
      {"sgd", SGD(1e-2).clone()},
      {"sgd_decay", SGD(1e-2).weight_decay(0.1).clone()},
      {"momentum", SGD(1e-2).momentum(0.9).dampening(0.3).weight_decay(0.1).clone()},
      {"nesterov", SGD(1e-2).momentum(0.9).nesterov(true).clone()},
      {"adamw_groups", AdamW(1e-2)
                           .group(is_odd, AdamW().weight_decay(0.0))
                           .beta1(0.3)
                           .beta2(0.95)
                           .eps(1e-4)
                           .weight_decay(0.1)
                           .clone()},
      {"sgd_groups", SGD(1e-2)
                         .momentum(0.9)
                         .nesterov(true)
                         .weight_decay(0.1)
                         .group(is_odd, [](SGD& own) { own.momentum(0.5); })
                         .clone()},
      {"lion", Lion(1e-2).weight_decay(0.1).clone()}};
  for (const auto& [name, optimizer] : cases) {
    const Followed found = follow(python, *optimizer);
    EXPECT_TRUE(same(found.weights, python.tensors(name))) << name;
    EXPECT_TRUE(same(found.averages, python.tensors(name + ".ema"))) << name;
  }
}

/// Norms are summed in another order, and LibTorch's C++ optimizers compute in another order.
TEST(DoubleParameters, FollowOtherOptimizersToFifteenDigits) {
  const Python python;
  EXPECT_LT(distance(follow(python, LAMB(1e-2).weight_decay(0.1)).weights, python.tensors("lamb")),
            1e-14);
  const TorchOptimizer adagrad([](std::vector<at::Tensor> masters) {
    return std::make_unique<torch::optim::Adagrad>(std::move(masters),
                                                   torch::optim::AdagradOptions(1e-2));
  });
  const Followed found = follow(python, adagrad);
  EXPECT_LT(distance(found.weights, python.tensors("adagrad")), 1e-14);
  EXPECT_LT(distance(found.averages, python.tensors("adagrad.ema")), 1e-14);
}

TEST(DoubleParameters, HaveTheSameBitsOnAnyNumberOfThreads) {
  const auto run = [](int threads) {
    const auto model = std::make_shared<Weights>(doubles({{100'000}}, 0));
    Runtime runtime = solo_runtime(RuntimeOptions().threads(threads));
    Trainer trainer(runtime, model, LAMB(1e-2), TrainerOptions().ema(0.9).clip_grad_norm(0.1));
    for (int step = 0; step < 3; ++step) {
      trainer.step([&] { return model->loss(doubles({{100'000}}, step)); });
    }
    auto result = model->values();
    result.push_back(values(trainer.averaged()).at(0));
    return result;
  };
  EXPECT_TRUE(equal(run(1), run(3)));
}

TEST(DoubleParameters, AreRefusedByNameWhereTheyCannotBeTrained) {
  const auto model = std::make_shared<Weights>(doubles(kSizes, 0));
  Runtime runtime = one_rank();
  const auto refusal = [&](const OptimizerSpec& optimizer, const Precision& precision) {
    return error_of(
        [&] { Trainer(runtime, model, optimizer, TrainerOptions().precision(precision)); });
  };
  const auto names_it = HasSubstr("parameter p0 is fp64");
  EXPECT_THAT(refusal(AdamW(), Precision::O1(at::kBFloat16)),
              AllOf(names_it, HasSubstr("computes in 16 bits"), HasSubstr("Precision::O0()")));
  EXPECT_THAT(refusal(AdamW(), Precision::O0().wire(at::kHalf)),
              AllOf(names_it, HasSubstr("would travel as Half"), HasSubstr("wire(torch::kFloat)")));
  EXPECT_THAT(refusal(AdamW().moments(MomentFormat::bf16), Precision::O0()),
              AllOf(names_it, HasSubstr("AdamW lr 0.001"), HasSubstr("MomentFormat::fp32")));
  const Model view(model);
  const c10::Device gpu(c10::kCUDA, 0);
  EXPECT_THAT(error_of([&] {
                detail::require_trainable_doubles(view.parameters(), Precision::O0(), SGD(0.1),
                                                  gpu);
              }),
              AllOf(names_it, HasSubstr("not on cuda:0"), HasSubstr("use TorchOptimizer")));
  EXPECT_NO_THROW(detail::require_trainable_doubles(view.parameters(), Precision::O0(),
                                                    torch_adamw(0.1, 0.0), gpu));
}

TEST(DoubleParameters, AreClippedInFp64) {
  const double limit = 0.1;
  const std::vector<at::Tensor> gradient = doubles(kSizes, 5);
  at::Tensor squares = at::zeros({}, at::kDouble);
  for (const at::Tensor& each : gradient) {
    squares += each.square().sum();
  }
  const double norm = std::sqrt(squares.item<double>());
  for (const bool torch_one : {false, true}) {
    const auto moved = [&](const TrainerOptions& options, const std::vector<at::Tensor>& by) {
      const auto model = std::make_shared<Weights>(doubles(kSizes, 0));
      for (const at::Tensor& parameter : model->all) {
        parameter.detach().zero_();
      }
      Runtime runtime = one_rank();
      const TorchOptimizer sgd([](std::vector<at::Tensor> masters) {
        return std::make_unique<torch::optim::SGD>(std::move(masters), 1.0);
      });
      const SGD fused(1.0);
      const OptimizerSpec& optimizer = torch_one ? static_cast<const OptimizerSpec&>(sgd)
                                                 : static_cast<const OptimizerSpec&>(fused);
      Trainer trainer(runtime, model, optimizer, options);
      const auto report = trainer.step([&] { return model->loss(by); });
      EXPECT_FALSE(report.skipped());
      return model->values();
    };
    std::vector<at::Tensor> clipped;
    std::vector<at::Tensor> shortened;
    std::vector<at::Tensor> huge;
    for (const at::Tensor& each : gradient) {
      clipped.push_back(-each.clamp(-limit, limit));
      shortened.push_back(-each * (0.5 / (norm + 1e-6)));
      huge.push_back(at::full_like(each, 1e300));
    }
    EXPECT_TRUE(equal(moved(TrainerOptions().clip_grad_value(limit), gradient), clipped));
    EXPECT_LT(distance(moved(TrainerOptions().clip_grad_norm(0.5), gradient), shortened), 1e-15);
    EXPECT_EQ(moved(TrainerOptions(), huge).at(1)[0][0].item<double>(), -1e300);
  }
}

TEST(DoubleParameters, SkipAGradientThatIsNotFinite) {
  const auto model = std::make_shared<Weights>(doubles(kSizes, 0));
  Runtime runtime = one_rank();
  Trainer trainer(runtime, model, AdamW(1e-2), TrainerOptions().diagnose_after_skips(1));
  auto gradients = doubles(kSizes, 1);
  gradients[1][2][3] = std::numeric_limits<double>::infinity();
  const auto report = trainer.step([&] { return model->loss(gradients); });
  EXPECT_TRUE(report.skipped());
  EXPECT_TRUE(equal(model->values(), doubles(kSizes, 0)));
  trainer.step([&] { return model->loss(gradients); });
  EXPECT_THAT(trainer.diagnosis(), HasSubstr("not finite"));
}

TEST(DoubleParameters, GradientsOfMicroBatchesAddUpInFp64) {
  const auto model =
      std::make_shared<Weights>(std::vector<at::Tensor>{at::zeros({1}, at::kDouble)});
  Runtime runtime = one_rank();
  Trainer trainer(runtime, model, SGD(1.0), TrainerOptions().accumulate(4));
  for (const double part : {1.0, 1e-12, 1e-13, -1.0}) {
    trainer.step([&] { return model->loss({at::full({1}, part, at::kDouble)}); });
  }
  EXPECT_EQ(model->all[0].item<double>(), -(1.0 + 1e-12 + 1e-13 - 1.0) / 4);
  EXPECT_EQ(trainer.memory().accumulators, 64 * 8);
}

TEST(DoubleParameters, SeveralLossesAddUpInFp64) {
  const auto model =
      std::make_shared<Weights>(std::vector<at::Tensor>{at::zeros({1}, at::kDouble)});
  Runtime runtime = one_rank();
  Trainer trainer(runtime, model, SGD(1.0), TrainerOptions().losses(2));
  const auto report = trainer.step([&] {
    return Loss::several({model->loss({at::full({1}, 1.0, at::kDouble)}),
                          model->loss({at::full({1}, 1e-12, at::kDouble)}) + 1e-12});
  });
  EXPECT_EQ(model->all[0].item<double>(), -(1.0 + 1e-12));
  EXPECT_EQ(report.loss(), 1e-12);
}

TEST(DoubleParameters, TravelInFp64UnlessTheProgramChoosesFp32) {
  const double gradient = 1.0 + 1e-12;
  const auto run = [&](const Precision& precision, int64_t bytes) {
    const auto model =
        std::make_shared<Weights>(std::vector<at::Tensor>{at::zeros({1}, at::kDouble)});
    Runtime runtime = one_rank();
    Trainer trainer(runtime, model, SGD(1.0), TrainerOptions().precision(precision));
    trainer.step([&] { return model->loss({at::full({1}, gradient, at::kDouble)}); });
    EXPECT_EQ(trainer.memory().gradients, 64 * bytes);
    return model->all[0].item<double>();
  };
  EXPECT_EQ(run(Precision::O0(), 8), -gradient);
  EXPECT_EQ(run(Precision::O0().wire(at::kFloat), 4), -1.0);
}

TEST(DoubleParameters, MixWithFp32Parameters) {
  const auto run = [](bool narrow, bool wide) {
    std::vector<at::Tensor> start;
    for (const at::Tensor& each : doubles({{5}, {6}}, 0)) {
      start.push_back(each.to(start.empty() ? at::kFloat : at::kDouble));
    }
    const auto model = std::make_shared<Weights>(start);
    model->all[0].set_requires_grad(narrow);
    model->all[1].set_requires_grad(wide);
    Runtime runtime = one_rank();
    Trainer trainer(runtime, model, AdamW(1e-2), TrainerOptions().ema(0.5));
    for (int step = 0; step < 5; ++step) {
      trainer.step([&] { return model->loss(doubles({{5}, {6}}, 1 + step)); });
    }
    EXPECT_EQ(model->all[0].scalar_type(), at::kFloat);
    EXPECT_EQ(model->all[1].scalar_type(), at::kDouble);
    if (narrow && wide) {
      EXPECT_THAT(trainer.summary(), HasSubstr("6 elements are fp64"));
    }
    return model->values();
  };
  const auto both = run(true, true);
  EXPECT_TRUE(at::equal(both[0], run(true, false)[0]));
  EXPECT_TRUE(at::equal(both[1], run(false, true)[1]));
}

struct Normed : torch::nn::Module {
  Normed()
      : linear(register_module("linear", torch::nn::Linear(4, 3))),
        norm(register_module("norm", torch::nn::BatchNorm1d(3))) {
    linear->bias.set_requires_grad(false);
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return norm->forward(linear->forward(x)); }
  torch::nn::Linear linear;
  torch::nn::BatchNorm1d norm;
};

TEST(DoubleParameters, KeepFrozenParametersAndBuffersInFp64) {
  const auto model = std::make_shared<Normed>();
  model->linear->bias.detach().fill_(1.0 / 3.0);
  Runtime runtime = one_rank();
  Trainer trainer(runtime, model, AdamW(1e-2));
  const at::Tensor x = doubles({{8, 4}}, 1).at(0);
  trainer.step([&] { return model->forward(x).pow(3).mean(); });
  EXPECT_EQ(model->linear->bias[0].item<double>(), 1.0 / 3.0);
  EXPECT_EQ(model->norm->running_mean.scalar_type(), at::kDouble);
  model->linear->bias.set_requires_grad(true);
  trainer.adopt_trainable();
  EXPECT_EQ(model->linear->bias[0].item<double>(), 1.0 / 3.0);
  trainer.step([&] { return model->forward(x).pow(3).mean(); });
  EXPECT_EQ(trainer.updates(), 2);
  const at::Tensor weight = model->linear->weight.detach().clone();
  model->linear->weight.set_requires_grad(false);
  trainer.adopt_trainable();
  EXPECT_TRUE(at::equal(model->linear->weight, weight));
}

TEST(DoubleParameters, AdoptWeightsThatTheProgramWroteInFp64) {
  const auto model = std::make_shared<Weights>(doubles(kSizes, 0));
  Runtime runtime = one_rank();
  Trainer trainer(runtime, model, AdamW(1e-2));
  train(trainer, *model, 1);
  const auto given = doubles(kSizes, 77);
  for (size_t i = 0; i < given.size(); ++i) {
    model->all[i].set_data(given[i].clone());
  }
  trainer.adopt_weights();
  EXPECT_TRUE(equal(model->values(), given));
  EXPECT_TRUE(equal(values(trainer.masters()), given));
}

TEST(DoubleParameters, ResumeWithTheSameBitsAndLoadInPython) {
  const auto options = [](const std::string& folder) {
    return TrainerOptions().ema(0.9).snapshots(SnapshotOptions().folder(folder));
  };
  const std::vector<std::shared_ptr<OptimizerSpec>> optimizers = {
      AdamW(1e-2).clone(), SGD(1e-2).momentum(0.9).clone(), torch_adamw(1e-2, 0.1).clone()};
  for (const auto& optimizer : optimizers) {
    const testing::TemporaryFolder folder;
    Runtime runtime = one_rank();
    const auto model = std::make_shared<Weights>(doubles(kSizes, 0));
    Trainer trainer(runtime, model, *optimizer, options(folder.path()));
    train(trainer, *model, 5);
    trainer.save();
    trainer.finish_saving();
    const auto saved = model->values();
    train(trainer, *model, 5, 5);

    const auto again = std::make_shared<Weights>(doubles(kSizes, 3));
    Trainer other(runtime, again, *optimizer, options(folder.path()));
    other.resume(folder.path());
    EXPECT_TRUE(equal(again->values(), saved));
    train(other, *again, 5, 5);
    EXPECT_TRUE(equal(again->values(), model->values())) << optimizer->describe();
    EXPECT_TRUE(equal(values(other.averaged()), values(trainer.averaged())));

    const std::string script =
        "import glob, sys\n"
        "from safetensors.numpy import load_file\n"
        "files = glob.glob(sys.argv[1] + '/**/model*.safetensors', recursive=True)\n"
        "tensors = load_file(files[0])\n"
        "assert tensors['p1'].dtype == 'float64' and tensors['p1'].shape == (5, 7)\n"
        "assert tensors['p1'][2, 3].item().hex() == float.fromhex(sys.argv[2]).hex()\n";
    const std::string path = folder.file("load.py");
    std::ofstream(path) << script;
    char bits[64];
    std::snprintf(bits, sizeof(bits), "%a", saved[1][2][3].item<double>());
    const std::string command =
        std::string(LOCKSTEP_TEST_PYTHON) + " " + path + " " + folder.path() + " " + bits;
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
}

TEST(DoubleParameters, AreEvaluatedInFp64) {
  const auto model = std::make_shared<Weights>(doubles({{4}}, 0));
  Runtime runtime = one_rank();
  Trainer trainer(runtime, model, SGD(0.1), TrainerOptions().ema(0.5));
  trainer.step([&] { return model->loss(doubles({{4}}, 1)); });
  const auto average = values(trainer.averaged());
  {
    const AveragedWeights averaged(trainer, model);
    EXPECT_TRUE(equal(model->values(), average));
  }
  EXPECT_FALSE(equal(model->values(), average));
}

}  // namespace
}  // namespace lockstep
