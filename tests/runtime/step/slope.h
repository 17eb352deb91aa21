#pragma once

#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"

namespace lockstep::testing {

/// Each gradient is 1, so that with SGD an update moves each weight by the learning rate.
struct Slope {
  explicit Slope(const OptimizerSpec& spec, const TrainerOptions& options = {})
      : model(std::make_shared<OneWeight>(testing::full({70}, 0.0))),
        trainer(runtime(), model, spec, options) {}

  StepReport step(bool overflows = false) {
    return trainer.step(
        [&]() -> Loss { return model->weight.sum() * (overflows ? overflow_factor : 1.0F); });
  }
  /// How far the next update moves.
  double move() {
    const double before = model->weight[0].item<double>();
    const auto report = step();
    const double moved = before - model->weight[0].item<double>();
    EXPECT_NEAR(report.learning_rate(), moved, 1e-6);
    return moved;
  }

  std::shared_ptr<OneWeight> model;
  Trainer trainer;
};

inline TrainerOptions saved_in(const SharedFolder& folder) {
  return TrainerOptions().snapshots(
      SnapshotOptions().folder(folder.file("run")).asynchronous(false));
}

}  // namespace lockstep::testing
