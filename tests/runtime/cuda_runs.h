#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <lockstep/runtime/trainer.h>

#include <memory>
#include <vector>

#include "flat_tensors.h"
#include "models.h"

namespace lockstep::testing {

/// Rows [begin, begin + rows) of the 32 of a step, for an Mlp; the same wherever they are used.
inline std::pair<at::Tensor, at::Tensor> rows_of(int64_t step, int64_t begin, int64_t rows) {
  const auto drawn = [](at::IntArrayRef sizes, int64_t seed) {
    return at::randn(sizes, at::detail::createCPUGenerator(static_cast<uint64_t>(seed)));
  };
  return {drawn({32, 4}, step).narrow(0, begin, rows),
          drawn({32, 2}, step + 1'000'000).narrow(0, begin, rows)};
}

/// A model and its Trainer on the device of a runtime; the same start on each.
struct DeviceRun {
  DeviceRun(Runtime& runtime, const TrainerOptions& options) {
    at::manual_seed(11);
    model = std::make_shared<Mlp>(64);
    model->to(runtime.device());
    trainer = std::make_unique<Trainer>(runtime, model, AdamW(1e-2), options);
  }
  StepReport step(const std::pair<at::Tensor, at::Tensor>& rows, float factor = 1.0F) {
    const auto batch = trainer->to_device(rows);
    return trainer->step([&] { return model->loss(batch.first, batch.second) * factor; });
  }
  StepReport step(int64_t step, float factor = 1.0F) {
    return this->step(rows_of(step, 0, 32), factor);
  }
  at::Tensor masters() const { return flat(trainer->masters()).cpu(); }

  std::shared_ptr<Mlp> model;
  std::unique_ptr<Trainer> trainer;
};

}  // namespace lockstep::testing
