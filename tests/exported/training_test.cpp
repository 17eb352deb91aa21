// Models that Python exported train here as they train in Python.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <lockstep/runtime/load_weights.h>
#include <lockstep/runtime/trainer.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "error_of.h"
#include "python_models.h"
#include "runtime/flat_tensors.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"
#include "test_runtime.h"

namespace lockstep {
namespace {

constexpr int steps = 20;

std::vector<std::pair<std::string, at::Tensor>> state(const ExportedModule& model) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& entry : model->named_parameters()) {
    tensors.emplace_back(entry.key(), entry.value().detach());
  }
  for (const auto& entry : model->named_buffers()) {
    tensors.emplace_back(entry.key(), entry.value());
  }
  return tensors;
}

/// How a tensor is compared with Python's: same_bits, or PythonModel::same.
using Same = bool (*)(const at::Tensor&, const at::Tensor&);

bool same_bits(const at::Tensor& ours, const at::Tensor& pythons) {
  return at::equal(ours, pythons);
}

/// Names and values of parameters and buffers.
void expect_pythons_tensors(const PythonModel& python, const ExportedModule& model,
                            const std::string& prefix, Same same = same_bits) {
  for (const auto& [name, tensor] : state(model)) {
    ASSERT_NE(python.expected.find(prefix + name), nullptr) << name;
    EXPECT_TRUE(same(tensor, python.expected.tensor(prefix + name))) << name;
  }
}

/// The same, and the output after eval().
void expect_pythons_state(const PythonModel& python, ExportedModule& model, Same same = same_bits) {
  const auto tensors = state(model);
  expect_pythons_tensors(python, model, "state.", same);
  size_t stored = 0;
  for (const auto& entry : python.expected.header().tensors) {
    stored += entry.name.rfind("state.", 0) == 0 ? 1 : 0;
  }
  EXPECT_EQ(tensors.size(), stored);
  model->eval();
  at::manual_seed(1234);
  EXPECT_TRUE(same(model->outputs(python.inputs).at(0), python.expected.tensor("eval")));
  model->train();
}

std::vector<at::Tensor> trainable(const ExportedModule& model) {
  std::vector<at::Tensor> parameters;
  const Model view(model);
  for (const ModelTensor& parameter : view.parameters()) {
    if (parameter.tensor.requires_grad()) {
      parameters.push_back(parameter.tensor);
    }
  }
  return parameters;
}

void expect_pythons_training(const std::string& name) {
  SCOPED_TRACE(name);
  const PythonModel python(name);
  ExportedModule model = python.load();
  torch::optim::SGD optimizer(trainable(model), 0.05);
  at::manual_seed(1234);
  std::vector<at::Tensor> losses;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = python.loss(model);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.detach());
  }
  EXPECT_TRUE(at::equal(at::stack(losses), python.expected.tensor("losses")));
  expect_pythons_state(python, model);
}

TEST(ExportedTraining, ConvolutionsHaveTheBitsOfPython) {
  for (const char* name : {"resnet18", "depthwise", "unet"}) {
    expect_pythons_training(name);
  }
}

TEST(ExportedTraining, LanguageModelsHaveTheBitsOfPython) {
  for (const char* name : {"lstm", "gru", "bert", "gpt"}) {
    expect_pythons_training(name);
  }
}

TEST(ExportedTraining, OtherModelsHaveTheBitsOfPython) {
  for (const char* name :
       {"mlp", "forces", "masked", "several", "modes", "functional", "norms", "decomposed"}) {
    expect_pythons_training(name);
  }
}

TEST(ExportedTraining, PartsWithoutGradientsAndUnderAutocastHaveTheBitsOfPython) {
  expect_pythons_training("regions");
}

TEST(ExportedTraining, WhatPythonsEvalLeavesOnStaysOn) {
  expect_pythons_training("kept");
}

TEST(ExportedTraining, ArithmeticOnSizesHasTheBitsOfPython) {
  expect_pythons_training("sizes");
  expect_pythons_training("related");
}

TEST(ExportedTraining, DetachStaysInDecomposedPrograms) {
  expect_pythons_training("detached");
}

TEST(ExportedTraining, DecomposedConvolutionsHaveTheBitsOfPython) {
  expect_pythons_training("convolutions");
}

TEST(ExportedTraining, BuffersKeepTheirDtypesAndMayHaveGapsOrOverlap) {
  expect_pythons_training("buffers");
}

void train(Trainer& trainer, const PythonModel& python, ExportedModule& model, int count) {
  for (int step = 0; step < count; ++step) {
    trainer.step([&] { return python.loss(model); });
  }
}

TEST(ExportedTraining, ATrainerAtO0HasTheBitsOfPython) {
  for (const char* name : {"mlp", "resnet18", "depthwise", "unet", "lstm", "gru", "bert", "gpt",
                           "forces", "several", "modes", "functional", "norms", "decomposed",
                           "regions", "kept", "detached", "convolutions", "buffers"}) {
    SCOPED_TRACE(name);
    const PythonModel python(name);
    ExportedModule model = python.load();
    Runtime runtime = testing::solo_runtime(RuntimeOptions().threads(1));
    Trainer trainer(runtime, model, TorchOptimizer([](std::vector<at::Tensor> weights) {
                      return std::make_unique<torch::optim::SGD>(std::move(weights), 0.05);
                    }));
    at::manual_seed(1234);
    train(trainer, python, model, steps);
    expect_pythons_state(python, model);
  }
}

/// A decomposed program does not say whether Python blocked gradients.
TEST(ExportedTraining, AGradientThatADecompositionMayHaveLostIsRefused) {
  const at::Tensor x = at::ones({6, 6});
  ExportedModule unstated(PythonModel::archive("functional"));
  EXPECT_EQ(unstated->forward(x).sizes(), (std::vector<int64_t>{6, 3}));
  EXPECT_THAT(error_of([&] { unstated->forward(x).sum().backward(); }),
              HasSubstr("ExportedModuleOptions().without_no_grad(true)"));
  unstated->eval();
  EXPECT_THAT(error_of([&] {
                torch::autograd::grad({unstated->forward(x).sum()}, unstated->parameters());
              }),
              HasSubstr("has no gradients: run_decompositions() loses torch.no_grad()"));
  Runtime runtime = testing::solo_runtime(RuntimeOptions().threads(1));
  unstated->train();
  Trainer trainer(runtime, unstated, SGD(0.05));
  EXPECT_THAT(error_of([&] { trainer.step([&] { return unstated->forward(x).sum(); }); }),
              HasSubstr("without_no_grad"));
  ExportedModule lost(PythonModel::archive("no_grad_decomposed"),
                      ExportedModuleOptions().without_no_grad(true));
  const std::string error = error_of([&] { lost->forward(x).sum().backward(); });
  EXPECT_THAT(error, HasSubstr("node '"));
  EXPECT_THAT(error, HasSubstr("was inside of torch.no_grad()"));
  EXPECT_THAT(error, HasSubstr("export_models.py"));
}

TEST(ExportedTraining, FusedOptimizersHaveTheBitsOfPythonInFp64) {
  const PythonModel python("forces");
  Runtime runtime = testing::solo_runtime(RuntimeOptions().threads(1));
  ExportedModule plain = python.load();
  Trainer sgd(runtime, plain, SGD(0.05));
  train(sgd, python, plain, steps);
  expect_pythons_state(python, plain, PythonModel::same);
  ExportedModule model = python.load();
  Trainer adamw(runtime, model, AdamW(1e-2).weight_decay(0.1));
  train(adamw, python, model, steps);
  expect_pythons_tensors(python, model, "adamw.state.", PythonModel::same);
}

TEST(ExportedTraining, AResumedRunEndsWithTheSameBits) {
  const PythonModel python("gpt");
  const testing::TemporaryFolder folder;
  Runtime runtime = testing::solo_runtime(RuntimeOptions().threads(1));
  at::Tensor expected;
  {
    ExportedModule model = python.load();
    Trainer trainer(runtime, model, AdamW(1e-2));
    trainer.resume(folder.path());
    train(trainer, python, model, 3);
    trainer.save();
    train(trainer, python, model, 3);
    expected = testing::flat(trainer.masters());
  }
  ExportedModule model = python.load();
  Trainer trainer(runtime, model, AdamW(1e-2));
  trainer.resume(folder.path());
  EXPECT_EQ(trainer.updates(), 3);
  train(trainer, python, model, 3);
  EXPECT_TRUE(at::equal(testing::flat(trainer.masters()), expected));
}

TEST(ExportedTraining, PythonsStateDictIsLoadedByName) {
  const testing::TemporaryFolder folder;
  for (const char* name : {"gpt", "resnet18"}) {
    const PythonModel python(name);
    std::vector<std::pair<std::string, at::Tensor>> weights;
    for (const auto& entry : python.expected.header().tensors) {
      if (entry.name.rfind("state.", 0) == 0) {
        weights.emplace_back(entry.name.substr(6), python.expected.tensor(entry.name));
      }
    }
    snapshot::save_safetensors(folder.file(name), weights);
    ExportedModule model = python.load();
    load_weights(model, folder.file(name));
    expect_pythons_state(python, model);
  }
}

TEST(ExportedTraining, CheckpointingKeepsGradientsAndMovesStatisticsOnce) {
  for (const char* name : {"gpt", "resnet18", "decomposed"}) {
    SCOPED_TRACE(name);
    const PythonModel python(name);
    ExportedModule plain = python.load();
    ExportedModule model = python.load();
    at::manual_seed(5);
    plain->forward(python.inputs[0]).square().mean().backward();
    at::manual_seed(5);
    checkpoint(model, python.inputs[0]).square().mean().backward();
    const auto expected = trainable(plain);
    const auto parameters = trainable(model);
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(at::equal(parameters[i].grad(), expected[i].grad()));
    }
    EXPECT_TRUE(at::equal(testing::flat(state(model)), testing::flat(state(plain))));
  }
}

/// The energy through a checkpointed region, and its derivative, which the loss contains.
TEST(ExportedTraining, CheckpointedForcesHaveTheSameBits) {
  const PythonModel python("forces");
  Runtime runtime = testing::solo_runtime(RuntimeOptions().threads(1));
  ExportedModule model = python.load();
  Trainer trainer(runtime, model, SGD(0.05));
  int computed = 0;
  for (int step = 0; step < steps; ++step) {
    trainer.step([&] {
      const at::Tensor positions = python.inputs[0].detach().clone().requires_grad_(true);
      const auto energy_of = [&](const at::Tensor& x) {
        ++computed;
        return model->forward(x);
      };
      const at::Tensor energy = checkpoint(energy_of, positions).sum();
      const at::Tensor slope =
          torch::autograd::grad({energy}, {positions}, {}, std::nullopt, /*create_graph=*/true)[0];
      return (slope + python.target).square().mean() + energy.square() * 1e-3;
    });
  }
  EXPECT_GT(computed, steps);  // recomputed
  expect_pythons_state(python, model, PythonModel::same);
}

/// What training_test saves and continue_training.py goes on with.
std::vector<std::pair<std::string, at::Tensor>> trained(const PythonModel& python,
                                                        ExportedModule& model, int count) {
  torch::optim::SGD optimizer(trainable(model), 0.05);
  at::manual_seed(99);
  for (int step = 0; step < count; ++step) {
    optimizer.zero_grad();
    python.loss(model).backward();
    optimizer.step();
  }
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (auto& [name, tensor] : state(model)) {
    tensors.emplace_back(name, tensor.contiguous().clone());
  }
  return tensors;
}

TEST(ExportedTraining, PythonGoesOnTrainingASavedArchiveWithTheSameBits) {
  const testing::TemporaryFolder folder;
  std::string command = std::string("OMP_NUM_THREADS=1 " LOCKSTEP_TEST_PYTHON
                                    " -B -W ignore " LOCKSTEP_CONTINUE_TRAINING " ") +
                        folder.path();
  for (const char* name : {"gpt", "resnet18", "modes", "buffers", "kept"}) {
    SCOPED_TRACE(name);
    const PythonModel python(name);
    ExportedModule model = python.load();
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    for (const auto& [key, tensor] : trained(python, model, 3)) {
      tensors.emplace_back("saved." + key, tensor);
    }
    const std::string path = folder.file(std::string(name) + ".pt2");
    model->save(path);
    model->save(path);
    ExportedModule again(path);
    for (const auto& [key, tensor] : trained(python, model, 3)) {
      tensors.emplace_back("later." + key, tensor);
    }
    EXPECT_TRUE(at::equal(testing::flat(trained(python, again, 3)),
                          testing::flat(trained(python, model, 0))));
    for (size_t i = 0; i < python.inputs.size(); ++i) {
      tensors.emplace_back("input." + std::to_string(i), python.inputs[i]);
    }
    tensors.emplace_back("target", python.target);
    snapshot::save_safetensors(folder.file(std::string(name) + ".safetensors"), tensors);
    command += std::string(" ") + name;
  }
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

TEST(ExportedTraining, MastersAreSavedInPlaceOfWeightsIn16Bits) {
  const testing::TemporaryFolder folder;
  const PythonModel python("gpt");
  ExportedModule model = python.load();
  Runtime runtime = testing::solo_runtime(RuntimeOptions().threads(1));
  Trainer trainer(runtime, model, SGD(0.05),
                  TrainerOptions().precision(Precision::O2(at::kBFloat16)));
  train(trainer, python, model, 2);
  model->save(folder.file("trained.pt2"), trainer.masters());
  const auto saved = ExportedModule(folder.file("trained.pt2"))->named_parameters();
  for (const auto& [name, master] : trainer.masters()) {
    EXPECT_EQ(saved[name].scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(saved[name], master)) << name;
  }
  EXPECT_TRUE(saved["head.weight"].is_same(saved["words.weight"]));
}

TEST(ExportedTraining, AFileThatCannotBeSavedIsNamedAndNotLeftInPart) {
  const testing::TemporaryFolder folder;
  const PythonModel python("mlp");
  ExportedModule model = python.load();
  EXPECT_THAT(error_of([&] { model->save(folder.file("missing/trained.pt2")); }),
              HasSubstr("missing/trained.pt2: cannot write the file"));
  EXPECT_THAT(error_of([&] {
                model->save(folder.file("t.pt2"), {{"other", at::ones({1})}});
              }),
              HasSubstr("a tensor 'other'"));
  const std::string path = folder.file("replaced.pt2");
  model->save(path);
  ExportedModule from(path);
  PythonModel("gpt").load()->save(path);
  EXPECT_THAT(error_of([&] { from->save(path); }), HasSubstr("replaced.pt2"));
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(ExportedTraining, ACloneSharesNoTensorAndTrainsWithTheSameBits) {
  for (const char* name : {"gpt", "modes", "regions"}) {
    SCOPED_TRACE(name);
    const PythonModel python(name);
    ExportedModule model = python.load();
    trained(python, model, 2);
    const auto before = trained(python, model, 0);
    ExportedModule target(std::dynamic_pointer_cast<ExportedModuleImpl>(model->clone()));
    EXPECT_TRUE(at::equal(testing::flat(trained(python, target, 3)),
                          testing::flat(trained(python, model, 3))));
    ExportedModule old(std::dynamic_pointer_cast<ExportedModuleImpl>(target->clone()));
    old->eval();
    trained(python, model, 2);
    EXPECT_TRUE(at::equal(testing::flat(state(old)), testing::flat(state(target))));
    EXPECT_FALSE(at::equal(testing::flat(state(old)), testing::flat(before)));
    EXPECT_EQ(target->parameters().size(), model->parameters().size());
  }
  ExportedModule gpt(PythonModel::archive("gpt"));
  const auto copied = gpt->clone()->named_parameters();
  EXPECT_TRUE(copied["head.weight"].is_same(copied["words.weight"]));
}

double distance(const PythonModel& python, const Precision& precision, const at::Tensor& expected,
                at::Tensor* result) {
  ExportedModule model = python.load();
  Runtime runtime = testing::solo_runtime(RuntimeOptions().threads(1));
  const auto options = TrainerOptions().precision(precision).unused(UnusedParameters::zeros);
  Trainer trainer(runtime, model, SGD(0.05), options);
  const at::Tensor before = testing::flat(trainer.masters()).clone();
  at::manual_seed(1234);
  train(trainer, python, model, steps);
  EXPECT_EQ(trainer.updates(), steps);
  const at::Tensor moved = testing::flat(trainer.masters()) - before;
  if (result != nullptr) {
    *result = moved.clone();
    return 0;
  }
  return ((moved - expected).norm() / expected.norm()).item<double>();
}

/// How far the weights have moved after 20 updates, compared with O0. The bound is four times the
/// largest distance that was measured (masked in bf16).
void expect_bounds(const std::vector<const char*>& names, bool has_fp16) {
  const auto fixed = amp::LossScalerOptions::fixed(64);
  for (const char* name : names) {
    const PythonModel python(name);
    at::Tensor expected;
    distance(python, Precision::O0(), {}, &expected);
    std::vector<Precision> levels = {Precision::O1(at::kBFloat16), Precision::O2(at::kBFloat16)};
    if (has_fp16) {
      levels.push_back(Precision::O2(at::kHalf));
    }
    for (const Precision& precision : levels) {
      const double found = distance(python, precision.loss_scale(fixed), expected, nullptr);
      std::cout << "  " << name << " " << precision.describe() << ": " << found << "\n";
      EXPECT_LE(found, 0.04) << name << " " << precision.describe();
    }
  }
}

TEST(ExportedTraining, SixteenBitPrecisionsStayWithinTheirBounds) {
  expect_bounds({"mlp", "lstm", "gru", "bert", "gpt", "masked", "several"}, true);
  // convolutions in fp16 are slow on most CPUs
  expect_bounds({"unet", "depthwise", "modes", "functional", "convolutions"}, false);
}

std::vector<double> losses_at(const PythonModel& python, const Precision& precision) {
  ExportedModule model = python.load();
  Runtime runtime = testing::solo_runtime(RuntimeOptions().threads(1));
  Trainer trainer(runtime, model, SGD(0.05), TrainerOptions().precision(precision));
  std::vector<double> losses;
  for (int step = 0; step < 4; ++step) {
    losses.push_back(trainer.step([&] { return python.loss(model); }).loss());
  }
  return losses;
}

/// The gradients of sixteen batch norms over few values depend on the last bits of the activations.
/// So the losses are compared. The bound is four times the largest difference that was measured.
TEST(ExportedTraining, LossesOfResNet18StayWithinTheirBoundInSixteenBits) {
  const PythonModel python("resnet18");
  const std::vector<double> expected = losses_at(python, Precision::O0());
  for (const Precision& precision : {Precision::O1(at::kBFloat16), Precision::O2(at::kBFloat16)}) {
    const std::vector<double> found = losses_at(python, precision);
    for (size_t i = 0; i < found.size(); ++i) {
      const double apart = std::abs(found[i] - expected[i]) / expected[i];
      std::cout << "  update " << i << " " << precision.describe() << ": " << apart << "\n";
      EXPECT_LE(apart, 0.28) << precision.describe();
    }
  }
}

TEST(ExportedTraining, NormsAndPatternsStayFp32AtO2) {
  const PythonModel python("gpt");
  ExportedModule model = python.load();
  Runtime runtime = testing::solo_runtime(RuntimeOptions().threads(1));
  Trainer trainer(runtime, model, AdamW(1e-3),
                  TrainerOptions().precision(Precision::O2(at::kBFloat16).keep_fp32("up")));
  const auto parameters = model->named_parameters();
  for (const char* kept : {"norm1.weight", "norm2.weight", "up.weight"}) {
    EXPECT_EQ(parameters[kept].scalar_type(), at::kFloat) << kept;
  }
  EXPECT_EQ(parameters["down.weight"].scalar_type(), at::kBFloat16);
  EXPECT_TRUE(parameters["head.weight"].is_same(parameters["words.weight"]));
}

}  // namespace
}  // namespace lockstep
