// A search for a batch size, after which a run goes on as if there had been none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/batch_size_finder.h>

#include <functional>
#include <limits>
#include <vector>

#include "error_of.h"
#include "searched_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// Steps whose closure has memory for `most` samples on the last rank.
std::function<void(int64_t)> limited(TrainingRun& run, int64_t most, std::vector<int64_t>& tried,
                                     ExitCode code = ExitCode::out_of_memory) {
  return [&run, most, &tried, code](int64_t size) {
    tried.push_back(size);
    for (int64_t step = 0; step < 2; ++step) {
      run.trainer.step([&]() -> Loss {
        const bool last = runtime().rank() == runtime().size() - 1;
        LOCKSTEP_CHECK_CODE(!last || step == 0 || size <= most, code, "no room for ", size);
        return run.model->loss(testing::drawn({size, 4}, 1), testing::drawn({size, 2}, 2));
      });
    }
  };
}

TEST(BatchSizeFinder, DoublesThenBisects) {
  TrainingRun run(runtime(), {});
  std::vector<int64_t> tried;
  EXPECT_EQ(find_batch_size(run.trainer, limited(run, 37, tried)), 37);
  EXPECT_THAT(tried, ElementsAre(1, 2, 4, 8, 16, 32, 64, 48, 40, 36, 38, 37));
  tried.clear();
  EXPECT_EQ(find_batch_size(run.trainer, limited(run, 37, tried), BatchSizeSearch().smallest(8)),
            32);
  EXPECT_THAT(tried, ElementsAre(8, 16, 32, 64, 48, 40));
}

TEST(BatchSizeFinder, TriesTheMostThatIsAllowed) {
  TrainingRun run(runtime(), {});
  std::vector<int64_t> tried;
  EXPECT_EQ(find_batch_size(run.trainer, limited(run, 100, tried),
                            BatchSizeSearch().smallest(4).most(22)),
            20);
  EXPECT_THAT(tried, ElementsAre(4, 8, 16, 20));
}

TEST(BatchSizeFinder, LeavesTheRunAsItWasBitForBit) {
  for (const TrainerOptions& options : kinds_of_runs()) {
    const SharedFolder folder;
    const Recipe recipe = recipe_of(options);
    const auto undisturbed = state_after(folder.file("a"), recipe, nullptr);
    const auto searched = state_after(folder.file("b"), recipe, [](TrainingRun& run) {
      std::vector<int64_t> tried;
      EXPECT_EQ(find_batch_size(run.trainer, limited(run, 3, tried), BatchSizeSearch().most(5)), 3);
    });
    EXPECT_EQ(searched, undisturbed) << options.describe();
  }
}

TEST(BatchSizeFinder, FailsWhereNoSizeFitsOrSomethingElseFails) {
  TrainingRun run(runtime(), {});
  std::vector<int64_t> tried;
  const auto code_of = [&](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::ok;
  };
  EXPECT_EQ(
      code_of([&] { static_cast<void>(find_batch_size(run.trainer, limited(run, 0, tried))); }),
      ExitCode::out_of_memory);
  EXPECT_THAT(
      error_of([&] { static_cast<void>(find_batch_size(run.trainer, limited(run, 0, tried))); }),
      AllOf(HasSubstr("no batch fits, the smallest size is 1"), HasSubstr("no room for 1")));
  EXPECT_EQ(
      code_of([&] {
        static_cast<void>(find_batch_size(run.trainer, limited(run, 2, tried, ExitCode::data)));
      }),
      ExitCode::data);
  EXPECT_EQ(run.trainer.updates(), 0);
  EXPECT_THAT(error_of([&] {
                static_cast<void>(find_batch_size(
                    run.trainer, [](int64_t) {}, BatchSizeSearch().smallest(0)));
              }),
              HasSubstr("smallest must be >= 1"));
  EXPECT_THAT(error_of([&] {
                static_cast<void>(find_batch_size(
                    run.trainer, [](int64_t) {}, BatchSizeSearch().smallest(4).most(3)));
              }),
              HasSubstr("most must be >= smallest"));
  EXPECT_THAT(error_of([&] {
                static_cast<void>(find_batch_size(
                    run.trainer, [](int64_t) {},
                    BatchSizeSearch().most(std::numeric_limits<int64_t>::max())));
              }),
              HasSubstr("BatchSizeSearch.most must be <= 1099511627776"));
}

}  // namespace
}  // namespace lockstep
