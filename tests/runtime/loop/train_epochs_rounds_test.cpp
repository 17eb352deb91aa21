// train_epochs with LocalUpdates: where a round ends, is saved and is resumed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/best_snapshot.h>
#include <lockstep/runtime/train_epochs.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "epoch_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// The sum of all weights of this rank's model.
double sum_of(const Mlp& model) {
  double sum = 0.0;
  for (const at::Tensor& parameter : model.parameters()) {
    sum += parameter.detach().to(at::kDouble).sum().item<double>();
  }
  return sum;
}

TEST(TrainEpochsInRounds, ARoundEndsBeforeTheValidationWhoseMetricIsSaved) {
  const SharedFolder folder;
  EpochRun run(folder.file("run"), /*accumulate=*/2,
               TrainerOptions().local_updates(LocalUpdates(3)));
  std::vector<double> metrics;
  run.metric = [&](int64_t) {
    metrics.push_back(sum_of(*run.model));
    return metrics.back();
  };
  run.train(EpochOptions().epochs(2).save_every(1));  // two updates an epoch, and a rest
  ASSERT_EQ(metrics.size(), 2U);
  load_best(run.trainer, folder.file("run"));
  EXPECT_EQ(sum_of(*run.model), std::min(metrics[0], metrics[1]));
}

/// Skips the windows of these numbers, of which the program has closed `closed` already, and asks
/// to stop after window `stop`.
void skip_windows(EpochRun& run, std::set<int> skipped, int closed = 0, int stop = -1) {
  const auto set_factor = [&run, skipped](int window) {
    run.loss_factor = skipped.count(window) > 0 ? std::numeric_limits<double>::infinity() : 1.0;
  };
  set_factor(closed);
  run.after_step = [&run, set_factor, stop, closed](const StepReport& report) mutable {
    if (!report.closes_update()) {
      return;
    }
    if (closed == stop) {
      run.trainer.request_stop();
    }
    set_factor(++closed);
  };
}

TEST(TrainEpochsInRounds, AnEpochMayEndWithSkipsAfterASnapshot) {
  const SharedFolder folder;
  const auto options = TrainerOptions().local_updates(LocalUpdates(3));
  at::Tensor masters;
  {
    EpochRun run(folder.file("run"), /*accumulate=*/2, options);
    skip_windows(run, {1});  // the second update of epoch 1
    run.train(EpochOptions().epochs(2).save_every(1));
    EXPECT_THAT(run.validated, ElementsAre(1, 3));
    EXPECT_TRUE(run.trainer.replicas_agree());
    masters = flat_masters(run.trainer).clone();
  }
  meet();
  EpochRun resumed(folder.file("run"), /*accumulate=*/2, options);
  resumed.train(EpochOptions().epochs(2));
  EXPECT_TRUE(at::equal(flat_masters(resumed.trainer), masters));
}

// The weights after such an epoch are those of a further snapshot of the last update.
TEST(TrainEpochsInRounds, AStopAfterSuchAnEpochLeavesWhereTheBitsCanBeResumed) {
  const SharedFolder folder;
  const auto options = TrainerOptions().local_updates(LocalUpdates(3));
  const auto epochs = EpochOptions().epochs(2).save_every(1);
  struct Stop {
    std::set<int> skipped;
    int after;   // a window
    int closed;  // windows until it leaves
  };
  for (const Stop& stop : {Stop{{1}, 0, 2}, Stop{{1, 2}, 1, 3}}) {
    const std::string name = c10::str(stop.skipped.size());
    EpochRun whole(folder.file("whole" + name), /*accumulate=*/2, options);
    skip_windows(whole, stop.skipped);
    whole.train(epochs);
    {
      EpochRun run(folder.file(name), /*accumulate=*/2, options);
      skip_windows(run, stop.skipped, 0, stop.after);
      run.train_until_stopped(epochs);
    }
    meet();
    EpochRun run(folder.file(name), /*accumulate=*/2, options);
    skip_windows(run, stop.skipped, stop.closed);
    run.train(epochs);
    EXPECT_TRUE(at::equal(flat_masters(run.trainer), flat_masters(whole.trainer))) << name;
  }
}

TEST(TrainEpochsInRounds, AStopInARoundResumesWithTheBitsOfTheUnbrokenRun) {
  const SharedFolder folder;
  const auto options = TrainerOptions().local_updates(LocalUpdates(3));
  EpochRun whole(folder.file("whole"), /*accumulate=*/2, options);
  whole.train(EpochOptions().epochs(2));
  // A request after update 1 stops at 2, the last of its epoch, after which a batch is left.
  for (const int64_t last : {1, 2, 3}) {
    const std::string path = folder.file("stopped" + std::to_string(last));
    EpochRun(path, /*accumulate=*/2, options).train_until_stopped(EpochOptions().epochs(2), last);
    meet();
    EpochRun run(path, /*accumulate=*/2, options);
    run.train(EpochOptions().epochs(2));
    EXPECT_TRUE(at::equal(flat_masters(run.trainer), flat_masters(whole.trainer))) << last;
  }
}

}  // namespace
}  // namespace lockstep
