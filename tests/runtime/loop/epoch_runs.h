#pragma once

#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/runtime/train_epochs.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"

namespace lockstep::testing {

inline constexpr int64_t kBatches = 5;  // of an epoch

/// A program that trains by epochs.
struct EpochRun {
  explicit EpochRun(const std::string& folder, int64_t accumulate = 1, TrainerOptions options = {},
                    int64_t epochs_per_loop = 1)
      : folder(folder),
        model((at::manual_seed(5), std::make_shared<Mlp>())),
        trainer(runtime(), model, AdamW(1e-2), options.accumulate(accumulate)),
        loader(runtime().loader(
            Numbered{static_cast<size_t>(kBatches * 3 * runtime().size())},
            LoaderOptions().batch_size(3).shuffle(true).epochs(epochs_per_loop))) {}

  void train(EpochOptions options) {
    train_epochs(
        trainer, loader, options.folder(folder),
        [&](auto& batch) {
          const auto report = trainer.step([&] {
            const auto [input, target] = trainer.to_device(batch);
            return at::mse_loss(model->forward(input).narrow(1, 0, 2), target) * loss_factor;
          });
          after_step(report);
          return report;
        },
        [&] {
          validated.push_back(trainer.updates());
          Evaluation found;
          found.values = {{"metric", metric(trainer.updates())},
                          {"other", other(trainer.updates())}};
          found.lower_is_better = lower_is_better;
          found.others_lower_is_better = others_lower_is_better;
          return found;
        });
  }

  /// Trains until a request to stop, made after update `last`, has saved and left.
  void train_until_stopped(EpochOptions options, int64_t last) {
    after_step = [this, last](const StepReport& report) {
      if (report.closes_update() && report.update() == last) {
        trainer.request_stop();
      }
    };
    train_until_stopped(std::move(options));
  }
  /// The same, where after_step() requests the stop.
  void train_until_stopped(EpochOptions options) {
    try {
      train(std::move(options));
      ADD_FAILURE() << "went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::preempted);
    }
  }

  std::string folder;
  std::shared_ptr<Mlp> model;
  Trainer trainer;
  Loader<Numbered> loader;
  std::vector<int64_t> validated;  // after these updates
  std::optional<bool> lower_is_better;
  std::vector<std::optional<bool>> others_lower_is_better;
  double loss_factor = 1.0;
  std::function<void(const StepReport&)> after_step = [](const StepReport&) {};
  std::function<double(int64_t)> metric = [](int64_t updates) { return 1.0 / updates; };
  std::function<double(int64_t)> other = [](int64_t) { return 7.0; };
};

}  // namespace lockstep::testing
