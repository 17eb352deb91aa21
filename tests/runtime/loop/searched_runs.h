#pragma once

#include <lockstep/runtime/trainer.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"

namespace lockstep::testing {

inline Recipe recipe_of(const TrainerOptions& options) {
  Recipe recipe;
  recipe.options = options;
  return recipe;
}

/// Everything that a snapshot has after ten micro-batches, with `search` after the sixth.
inline std::map<std::string, std::string> state_after(
    const std::string& folder, const Recipe& recipe,
    const std::function<void(TrainingRun&)>& search) {
  {
    TrainingRun run(runtime(), recipe);
    run.trainer.resume(folder);
    run.train_to(6);
    if (search) {
      search(run);
    }
    run.train_to(10);
    run.trainer.save();
  }
  return digests(step_path(folder, 10 / recipe.options.accumulate()));
}

inline std::vector<TrainerOptions> kinds_of_runs() {
  return {
      TrainerOptions(), TrainerOptions().precision(half_precision()).ema(0.9),
      TrainerOptions().shard_optimizer(true).ema(0.9).accumulate(2),
      TrainerOptions().precision(Precision::O3(at::kBFloat16)).schedule(WarmupCosine(100, 1000))};
}

}  // namespace lockstep::testing
