// Two ranks train an exported model as one rank does on the joined batch.
#include <gtest/gtest.h>
#include <lockstep/amp/sync_batch_norm.h>
#include <lockstep/runtime/data_parallel.h>
#include <lockstep/runtime/trainer.h>

#include "python_models.h"
#include "runtime/flat_tensors.h"
#include "test_names.h"
#include "test_runtime.h"

namespace lockstep {
namespace {

/// The loss of a rank's half of the batch. Dropout depends on the step and the half.
at::Tensor half_loss(const PythonModel& python, ExportedModule& model, int rank, int step = 0) {
  const int64_t begin = int64_t{3} * rank;
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& input : python.inputs) {
    inputs.push_back(input.dim() > 1 ? input.slice(0, begin, begin + 3) : input);
  }
  at::manual_seed(static_cast<uint64_t>(10 * step + rank));
  return python.loss(model, inputs, python.target.slice(0, begin, begin + 3));
}

bool same_masters(const Trainer& a, const Trainer& b) {
  const auto mine = a.masters();
  const auto other = b.masters();
  bool equal = mine.size() == other.size();
  for (size_t i = 0; equal && i < mine.size(); ++i) {
    equal = at::equal(mine[i].second, other[i].second);
  }
  return equal;
}

TEST(ExportedRanks, TwoRanksEqualOneOnTheJoinedBatch) {
  for (const char* name :
       {"mlp", "resnet18", "depthwise", "unet", "lstm", "gru", "bert", "gpt", "forces", "masked",
        "several", "modes", "functional", "norms", "decomposed"}) {
    for (const Precision& precision :
         {Precision::O0(), Precision::O2(at::kBFloat16).wire(at::kFloat)}) {
      if (precision.autocast() && std::string(name) == "forces") {
        continue;  // fp64
      }
      SCOPED_TRACE(std::string(name) + " " + precision.describe());
      const PythonModel python(name);
      ExportedModule model = python.load();
      ExportedModule alone = python.load();
      const auto options = TrainerOptions().precision(precision).unused(UnusedParameters::zeros);
      Trainer trainer(runtime(), model, AdamW(1e-2), options);
      Runtime solo = testing::solo_runtime();
      Trainer reference(solo, alone, AdamW(1e-2), TrainerOptions(options).accumulate(2));
      for (int step = 0; step < 5; ++step) {
        trainer.step([&] { return half_loss(python, model, runtime().rank(), step); });
        reference.step([&] { return half_loss(python, alone, 0, step); });
        reference.step([&] { return half_loss(python, alone, 1, step); });
      }
      EXPECT_TRUE(same_masters(trainer, reference));
      EXPECT_TRUE(trainer.replicas_agree());
    }
  }
}

TEST(ExportedRanks, TwoRanksTrainForcesWithTheBitsOfPython) {
  for (const bool shard : {false, true}) {
    const PythonModel python("forces");
    ExportedModule model = python.load();
    Trainer trainer(runtime(), model, AdamW(1e-2).weight_decay(0.1),
                    TrainerOptions().shard_optimizer(shard));
    for (int step = 0; step < 20; ++step) {
      trainer.step([&] { return half_loss(python, model, runtime().rank()); });
    }
    for (const auto& entry : model->named_parameters()) {
      EXPECT_TRUE(
          PythonModel::same(entry.value(), python.expected.tensor("halves.state." + entry.key())))
          << entry.key() << " " << shard;
    }
    EXPECT_TRUE(trainer.replicas_agree());
  }
}

TEST(ExportedRanks, DataParallelAveragesTheGradients) {
  const PythonModel python("unet");
  ExportedModule model = python.load();
  ExportedModule alone = python.load();
  DataParallel parallel(runtime().communicator(), model);
  half_loss(python, model, runtime().rank()).backward();
  parallel.finish();
  ((half_loss(python, alone, 0) + half_loss(python, alone, 1)) / 2).backward();
  const auto expected = alone->named_parameters();
  for (const auto& parameter : model->named_parameters()) {
    EXPECT_LT(
        (parameter.value().grad() - expected[parameter.key()].grad()).abs().max().item<float>(),
        1e-6)
        << parameter.key();
  }
}

/// As exported, decomposed, and used twice.
TEST(ExportedRanks, SynchronisedBatchNormReachesEveryFormOfTheNorm) {
  for (const char* name : {"resnet18", "functional", "norms", "decomposed"}) {
    SCOPED_TRACE(name);
    const PythonModel python(name);
    ExportedModule model = python.load();
    ExportedModule alone = python.load();
    EXPECT_GT(convert_sync_batchnorm(model, runtime().communicator()), 0);
    const at::Tensor& x = python.inputs[0];
    const int64_t begin = int64_t{3} * runtime().rank();
    model->forward(x.slice(0, begin, begin + 3)).sum().backward();
    alone->forward(x);
    const auto expected = alone->named_buffers();
    for (const auto& buffer : model->named_buffers()) {
      if (buffer.key().find("running_") != std::string::npos) {
        EXPECT_TRUE(at::allclose(buffer.value(), expected[buffer.key()], 1e-3, 1e-4))
            << buffer.key();
      }
    }
    model->eval();
    alone->eval();
    EXPECT_TRUE(at::allclose(model->forward(x), alone->forward(x), 1e-2, 1e-3));
  }
}

}  // namespace
}  // namespace lockstep
