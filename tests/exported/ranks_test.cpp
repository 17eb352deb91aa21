// Two ranks train an exported model as one rank does on the joined batch.
#include <gtest/gtest.h>
#include <lockstep/runtime/data_parallel.h>
#include <lockstep/runtime/trainer.h>

#include "python_models.h"
#include "runtime/flat_tensors.h"
#include "test_runtime.h"

namespace lockstep {
namespace {

using testing::PythonModel;
using testing::runtime;

/// The loss of a rank's half of the batch.
at::Tensor half_loss(const PythonModel& python, ExportedModule& model, int rank) {
  const int64_t begin = int64_t{3} * rank;
  return python.loss(model, {python.inputs[0].slice(0, begin, begin + 3)},
                     python.target.slice(0, begin, begin + 3));
}

TEST(ExportedRanks, TwoRanksEqualOneOnTheJoinedBatch) {
  for (const char* name : {"mlp", "unet", "masked"}) {
    for (const Precision& precision :
         {Precision::O0(), Precision::O2(at::kBFloat16).wire(at::kFloat)}) {
      SCOPED_TRACE(std::string(name) + " " + precision.describe());
      const PythonModel python(name);
      ExportedModule model = python.load();
      ExportedModule alone = python.load();
      const auto options = TrainerOptions().precision(precision).unused(UnusedParameters::zeros);
      Trainer trainer(runtime(), model, AdamW(1e-2), options);
      Runtime solo = testing::solo_runtime();
      Trainer reference(solo, alone, AdamW(1e-2), TrainerOptions(options).accumulate(2));
      for (int step = 0; step < 5; ++step) {
        trainer.step([&] { return half_loss(python, model, runtime().rank()); });
        reference.step([&] { return half_loss(python, alone, 0); });
        reference.step([&] { return half_loss(python, alone, 1); });
      }
      EXPECT_TRUE(at::equal(testing::flat(trainer.masters()), testing::flat(reference.masters())));
      EXPECT_TRUE(trainer.replicas_agree());
    }
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

}  // namespace
}  // namespace lockstep
