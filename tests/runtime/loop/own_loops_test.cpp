// Loops that programs write themselves, in the order that comes to mind.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/evaluate.h>

#include <string>

#include "epoch_runs.h"
#include "error_of.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// A loop as people write it: every two updates it evaluates, saves and samples, which draws
/// numbers and changes a variable. It leaves after update `stop`. Returns the masters.
at::Tensor evaluate_save_sample(const std::string& folder, int64_t stop) {
  EpochRun run(folder);
  double noise = 1.0;
  run.trainer.state("noise", noise);
  run.trainer.resume(folder);
  const auto forward = [&](const auto& batch) {
    const auto [input, target] = run.trainer.to_device(batch);
    return Prediction{run.model->forward(input).narrow(1, 0, 2), target};
  };
  MeanOf error("error", [](const at::Tensor& output, const at::Tensor& target) {
    return (output - target).square().flatten();
  });
  for (int64_t epoch = run.loader.epoch(); epoch < 3; ++epoch) {
    for (auto& batch : run.loader) {
      run.trainer.step([&] {
        const auto [output, target] = forward(batch);
        return at::mse_loss(output + noise * at::rand_like(output), target);
      });
      if (run.trainer.updates() % 2 == 0) {
        run.trainer.save(evaluate(run.trainer, *run.model, run.loader, forward, error));
        noise *= 0.5 + at::rand({1}).item<double>();
        if (run.trainer.updates() == stop) {
          run.trainer.save_and_leave();
        }
      }
    }
  }
  return flat_masters(run.trainer).clone();
}

TEST(OwnLoops, ThatEvaluateSaveSampleAndStopGoOnWithTheBitsOfTheUnbrokenRun) {
  const SharedFolder folder;
  const at::Tensor whole = evaluate_save_sample(folder.file("whole"), /*stop=*/0);
  for (const int64_t stop : {4, 10}) {  // in an epoch, and at its end
    const std::string path = folder.file("stopped" + std::to_string(stop));
    EXPECT_THAT(error_of([&] { evaluate_save_sample(path, stop); }), HasSubstr("stop"));
    meet();
    EXPECT_TRUE(at::equal(evaluate_save_sample(path, /*stop=*/0), whole)) << stop;
  }
}

}  // namespace
}  // namespace lockstep
