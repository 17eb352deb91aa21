#pragma once

#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>

#include <memory>

#include "trainer_runs.h"

namespace lockstep::testing {

/// A Trainer of the same Mlp each time, whose hosts act as `acts` says.
struct TrainedMlp {
  explicit TrainedMlp(const TrainerOptions& options, detail::HostActs acts,
                      const OptimizerSpec& optimizer)
      : model(made()),
        trainer(std::make_unique<detail::TrainerImpl>(runtime(), model, optimizer, options, acts)) {
  }

  static std::shared_ptr<Mlp> made() {
    at::manual_seed(11);
    return std::make_shared<Mlp>();
  }
  StepReport step(int64_t step, float factor = 1.0F) {
    return trainer.step([&] { return scaled_loss(*model, step, factor); });
  }
  at::Tensor masters() const {
    return flat(trainer.impl().storage.named(trainer.impl().storage.arena().whole_masters()));
  }

  std::shared_ptr<Mlp> model;
  Trainer trainer;
};

}  // namespace lockstep::testing
