#pragma once

#include "runtime/trainer_runs.h"

namespace lockstep::testing {

using namespace detail;

/// What a run left; inf on the last rank at some steps.
struct Outcome {
  at::Tensor masters, weights, averages;
  std::vector<double> norms;
  double scale = 0.0;
  int64_t updates = 0;
  Trainer::Memory memory;
};

inline Outcome run(const OptimizerSpec& spec, const TrainerOptions& options, int64_t steps = 12,
                   bool with_overflows = true) {
  at::manual_seed(17);
  const auto model = std::make_shared<Mlp>(/*hidden=*/37);
  Trainer trainer(runtime(), model, spec, options);
  Outcome outcome;
  for (int64_t step = 0; step < steps; ++step) {
    const bool planted = step == 3 || step == 8;
    if (planted && !with_overflows) {
      continue;
    }
    const bool here = planted && runtime().rank() == runtime().size() - 1;
    for (int64_t k = 0; k < options.accumulate(); ++k) {
      const auto report = trainer.step(
          [&] { return scaled_loss(*model, step * 10 + k, here ? overflow_factor : 1.0F); });
      if (report.closes_update()) {
        EXPECT_EQ(report.skipped(), planted);
        outcome.norms.push_back(planted ? 0.0 : report.grad_norm());
      }
    }
    EXPECT_TRUE(trainer.replicas_agree()) << step;
  }
  outcome.masters = flat_masters(trainer);
  outcome.weights = flat(model->parameters());
  outcome.averages = options.ema() > 0.0 ? flat(trainer.averaged()) : outcome.masters;
  outcome.scale = trainer.loss_scale();
  outcome.updates = trainer.updates();
  outcome.memory = trainer.memory();
  return outcome;
}

inline void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_TRUE(at::equal(a.masters, b.masters)) << what;
  EXPECT_TRUE(at::equal(a.weights, b.weights)) << what;
  EXPECT_TRUE(at::equal(a.averages, b.averages)) << what;
  EXPECT_EQ(a.norms, b.norms) << what;
  EXPECT_EQ(a.scale, b.scale) << what;
  EXPECT_EQ(a.updates, b.updates) << what;
}

inline Precision at_scale(const Precision& precision) {
  return precision.loss_scale(amp::LossScalerOptions().init_scale(256));
}

}  // namespace lockstep::testing
