#pragma once

#include <memory>

#include "runtime/trainer_runs.h"

namespace lockstep::testing {

constexpr int64_t kRound = 3;

/// A small model and its Trainer.
struct Trained {
  explicit Trained(const TrainerOptions& options, const OptimizerSpec& optimizer = AdamW(1e-2),
                   Runtime& ranks = runtime())
      : model((at::manual_seed(11), std::make_shared<Mlp>())),
        trainer(ranks, model, optimizer, options) {}
  StepReport step(float factor = 1.0F) {
    return trainer.step([&] { return scaled_loss(*model, count++, factor); });
  }
  void steps(int64_t number) {
    for (int64_t i = 0; i < number; ++i) {
      step();
    }
  }
  int64_t count = 0;
  std::shared_ptr<Mlp> model;
  Trainer trainer;
};

inline TrainerOptions local(LocalUpdates updates) {
  return TrainerOptions().local_updates(updates);
}

inline bool several_ranks() {
  return runtime().size() > 1;
}

}  // namespace lockstep::testing
