// Loaders: validation after a resume, and samples that each rank has of its own.
#include <lockstep/runtime/loader.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// Trains as validating programs do, and returns how many batches validation saw in each epoch.
/// `stop_at`: saves and leaves after that update.
std::vector<int64_t> validated(const std::string& folder, int64_t stop_at,
                               bool saves_after_epochs = false) {
  const auto model = std::make_shared<testing::Awkward>();
  auto train = runtime().loader(testing::Numbered{24}, LoaderOptions().batch_size(2).shuffle(true));
  auto valid = runtime().loader(testing::Numbered{12}, LoaderOptions().batch_size(2));
  Trainer trainer(runtime(), model, AdamW(1e-2));
  trainer.resume(folder);
  std::vector<int64_t> batches;
  for (int64_t epoch = train.epoch(); epoch < 4; ++epoch) {
    for (auto& batch : train) {
      const auto [x, y] = trainer.to_device(batch);
      trainer.step([&, x = x, y = y] { return model->loss(x, y); });
      if (trainer.updates() == stop_at) {
        trainer.save();
        return batches;
      }
    }
    batches.push_back(0);
    for (auto& batch : valid) {
      (void)batch;
      ++batches.back();
    }
    if (saves_after_epochs) {
      trainer.save();
    }
    if (trainer.updates() == -stop_at) {
      return batches;
    }
  }
  return batches;
}

TEST(LoadersOfRanks, ValidationSeesAllItsBatchesAfterAResume) {
  const int64_t per_epoch = 12 / runtime().size();
  const int64_t whole = 6 / runtime().size();
  // In the middle of the second epoch, with its first batch in hand, with its last.
  for (const int64_t stop_at : {per_epoch + per_epoch / 2, per_epoch + 1, 2 * per_epoch}) {
    SCOPED_TRACE(stop_at);
    const SharedFolder folder;
    EXPECT_THAT(validated(folder.file("run"), stop_at), ElementsAre(whole));
    EXPECT_THAT(validated(folder.file("run"), 1000), ElementsAre(whole, whole, whole));
  }
}

TEST(LoadersOfRanks, ValidationIsWholeAlsoIfItWasTheLastBeforeTheSnapshot) {
  const int64_t per_epoch = 12 / runtime().size();
  const int64_t whole = 6 / runtime().size();
  const SharedFolder folder;
  EXPECT_THAT(validated(folder.file("run"), -2 * per_epoch, true), ElementsAre(whole, whole));
  const std::vector<int64_t> rest = validated(folder.file("run"), 1000, true);
  EXPECT_GE(rest.size(), 2U);
  EXPECT_THAT(rest, Each(whole));
}

/// Samples that each rank makes by itself.
struct Own {
  int64_t count = 0;
  double offset = 0.0;
  std::vector<int64_t>* seen = nullptr;
  size_t size() const { return static_cast<size_t>(count); }
  std::pair<at::Tensor, at::Tensor> get(size_t index) const {
    if (seen != nullptr) {
      seen->push_back(static_cast<int64_t>(index));
    }
    const double value = offset + static_cast<double>(index) / 100;
    return {at::full({4}, value, at::kFloat), at::full({2}, -value, at::kFloat)};
  }
};

LoaderOptions batches_of(int64_t size) {
  return LoaderOptions().batch_size(size).shuffle(true);
}

TEST(LoadersOfRanks, DataOfEachRanksOwnInRuntimeLoaderIsAnErrorThatNamesLocalLoader) {
  if (runtime().size() == 1) {
    EXPECT_EQ(runtime().loader(Own{8}, batches_of(2)).batches_per_epoch(), 4);
    return;
  }
  const int rank = runtime().rank();
  EXPECT_THAT(error_of([&] { runtime().loader(Own{8 + rank}, batches_of(2)); }),
              AllOf(HasSubstr("rank 1 has 9 samples, that of rank 0 has 8"),
                    HasSubstr("runtime.local_loader()")));
  EXPECT_THAT(error_of([&] {
                runtime().loader(Own{8, 0.1 * rank}, batches_of(2));
              }),
              AllOf(HasSubstr("sample 0 of rank 1 is not that of rank 0"),
                    HasSubstr("runtime.local_loader()"), HasSubstr("compare_ranks(false)")));
  const auto local = runtime().local_loader(Own{8, 0.1 * rank}, batches_of(2));
  EXPECT_EQ(local.batches_per_epoch(), 4);
  const auto asked = batches_of(2).compare_ranks(false);
  EXPECT_GE(runtime().loader(Own{8, 0.1 * rank}, asked).batches_per_epoch(), 1);
}

/// A sample that another library's numbers change in each call, or a processor's last bits.
struct Restless {
  bool random;
  mutable std::mt19937 engine{static_cast<unsigned>(runtime().rank())};
  size_t size() const { return 9; }
  std::pair<at::Tensor, float> get(size_t index) const {
    const double value = random ? static_cast<double>(engine()) : 1.0 + 1e-6 * runtime().rank();
    return {at::full({3}, value), 0.5F + static_cast<float>(index)};
  }
};

TEST(LoadersOfRanks, OneDatasetThatOnlyLooksDifferentIsTaken) {
  EXPECT_NO_THROW(runtime().loader(Restless{true}));
  EXPECT_NO_THROW(runtime().loader(Restless{false}));
}

/// Rank r's samples.
int64_t own_count(int rank) {
  return 20 + 7 * rank;
}

TEST(LoadersOfRanks, LocalLoaderGivesEachRankAllItsSamplesInAsManyBatches) {
  const int64_t mine = own_count(runtime().rank());
  const int64_t most = own_count(runtime().size() - 1);
  for (const int workers : {0, 2}) {
    auto loader = runtime().local_loader(Own{mine}, batches_of(4).epochs(2).workers(workers));
    EXPECT_EQ(loader.batches_per_epoch(), (most + 3) / 4);
    std::map<int64_t, std::vector<int64_t>> used;  // by epoch
    int64_t batches = 0, largest = 0, smallest = 100;
    for (auto& [x, y] : loader) {
      ++batches;
      largest = std::max(largest, x.size(0));
      smallest = std::min(smallest, x.size(0));
      for (int64_t i = 0; i < x.size(0); ++i) {
        used[loader.epoch()].push_back(std::lround(x[i][0].item<double>() * 100));
      }
    }
    EXPECT_EQ(batches, 2 * loader.batches_per_epoch());
    EXPECT_LE(largest, 4);
    EXPECT_GE(smallest, 1);
    EXPECT_NE(used[0], used[1]) << "the epochs have one order";
    std::vector<int64_t> each(static_cast<size_t>(mine));
    std::iota(each.begin(), each.end(), int64_t{0});
    for (auto& [epoch, indices] : used) {
      std::sort(indices.begin(), indices.end());
      EXPECT_EQ(indices, each) << "epoch " << epoch;
    }
  }
}

TEST(LoadersOfRanks, LocalLoaderRefusesWhatItWouldLeaveOut) {
  const int rank = runtime().rank(), last = runtime().size() - 1;
  const auto error = [&](int64_t count, const LoaderOptions& options) {
    return error_of([&] { runtime().local_loader(Own{count}, options); });
  };
  EXPECT_THAT(error(rank == last ? 0 : 5, batches_of(1)),
              HasSubstr(c10::str("rank ", last, " has no sample")));
  if (last == 0) {
    return;
  }
  EXPECT_THAT(
      error(rank == last ? 100 : 3, batches_of(10)),
      AllOf(HasSubstr("rank 0 has 3 samples"), HasSubstr("raise batch_size from 10 to 34")));
  EXPECT_NO_THROW(runtime().local_loader(Own{rank == last ? 100 : 3}, batches_of(34)));
  EXPECT_THAT(error(rank == last ? 26 : 12, batches_of(4).drop_last(true)),
              AllOf(HasSubstr(c10::str("rank ", last, " would leave out 14 samples")),
                    HasSubstr("switch drop_last off")));
  const auto dropping = batches_of(4).drop_last(true);
  EXPECT_NO_THROW(runtime().local_loader(Own{rank == last ? 15 : 12}, dropping));
}

/// A program that trains on samples of each rank's own: what it used, rank by rank.
struct LocalRun {
  LocalRun(Runtime& runtime, const std::string& folder, int64_t stop_at, int64_t batch_size = 4) {
    at::manual_seed(5);
    const auto model = std::make_shared<testing::Awkward>();
    Trainer trainer(runtime, model, AdamW(1e-2));
    const int64_t mine =
        runtime.size() == 1 ? all_own(testing::runtime().size()) : own_count(runtime.rank());
    auto loader = runtime.local_loader(Own{mine, 0.1 * runtime.rank(), &seen},
                                       batches_of(batch_size).epochs(2));
    notes = trainer.resume(folder).notes;
    for (auto& batch : loader) {
      const auto [x, y] = trainer.to_device(batch);
      trainer.step([&, x = x, y = y] { return model->loss(x, y); });
      epochs.push_back(loader.epoch());
      if (trainer.updates() == stop_at) {
        break;
      }
    }
    trainer.save();
    weights = testing::flat_masters(trainer).clone();
  }
  static int64_t all_own(int ranks) {
    int64_t all = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      all += own_count(rank);
    }
    return all;
  }
  std::vector<int64_t> seen;
  std::vector<int64_t> epochs;
  std::vector<std::string> notes;
  at::Tensor weights;
};

TEST(LoadersOfRanks, ALocalLoaderGoesOnBitForBitWithOtherSizesOnEachRank) {
  const SharedFolder folder;
  const LocalRun unbroken(runtime(), folder.file("unbroken"), 1000);
  const LocalRun before(runtime(), folder.file("run"), 3);
  const LocalRun after(runtime(), folder.file("run"), 1000);
  EXPECT_THAT(after.notes, IsEmpty());
  EXPECT_TRUE(at::equal(after.weights, unbroken.weights));
  std::vector<int64_t> seen = before.seen;
  seen.insert(seen.end(), after.seen.begin(), after.seen.end());
  EXPECT_EQ(seen, unbroken.seen);
}

TEST(LoadersOfRanks, ALocalLoaderOnOtherRanksBeginsTheCutEpochAgainAndSaysSo) {
  const SharedFolder folder;
  const LocalRun before(runtime(), folder.file("run"), 3);
  const LocalRun smaller(runtime(), folder.file("run"), 1000, 3);
  EXPECT_THAT(smaller.notes, ::testing::Contains(HasSubstr("epoch 0 begins again")));
  EXPECT_EQ(smaller.seen.size(),
            2U * static_cast<size_t>(runtime().size() == 1 ? LocalRun::all_own(1)
                                                           : own_count(runtime().rank())));
  if (runtime().size() == 1) {
    return;
  }
  const LocalRun again(runtime(), folder.file("other"), 3);
  if (runtime().is_main()) {
    Runtime solo = testing::solo_runtime();
    const LocalRun alone(solo, folder.file("other"), 1000);
    EXPECT_THAT(alone.notes, ::testing::Contains(HasSubstr("epoch 0 begins again")));
    EXPECT_EQ(alone.seen.size(), 2U * static_cast<size_t>(LocalRun::all_own(runtime().size())));
  }
}

/// Options of the last rank that differ from those of the others, and what is said of them.
struct OtherOptions {
  LoaderOptions options;
  std::string says;
};

TEST(LoadersOfRanks, WithOtherOptionsOnOneRankAreAnErrorOnEveryRank) {
  const int last = runtime().size() - 1;
  if (last == 0) {
    return;
  }
  const auto same = LoaderOptions().batch_size(4);
  const OtherOptions others[] = {
      {LoaderOptions().batch_size(5), "batch_size is 5"},
      {LoaderOptions().batch_size(4).shuffle(true), "shuffle is 1"},
      {LoaderOptions().batch_size(4).drop_last(true), "drop_last is 1"},
      {LoaderOptions().batch_size(4).epochs(2), "epochs is 2"},
  };
  for (const auto& [options, says] : others) {
    const auto& mine = runtime().rank() == last ? options : same;
    const auto told = AllOf(HasSubstr("the LoaderOptions of rank " + std::to_string(last)),
                            HasSubstr(says + " on rank " + std::to_string(last)),
                            HasSubstr("on rank 0"), HasSubstr("uneven_data(true)"));
    EXPECT_THAT(error_of([&, &mine = mine] { runtime().loader(Own{40}, mine); }), told);
    EXPECT_THAT(error_of([&, &mine = mine] { runtime().local_loader(Own{40}, mine); }), told);
  }
  const auto sizes = LoaderOptions().batch_size(4 + runtime().rank());
  EXPECT_THAT(error_of([&] { runtime().validation_loader(Own{40}, sizes); }),
              HasSubstr("batch_size is 5 on rank 1 and 4 on rank 0"));
}

TEST(LoadersOfRanks, ARankThatComparesAndOneThatDoesNotAreRefused) {
  const auto mine = LoaderOptions().batch_size(4).compare_ranks(runtime().is_main());
  if (runtime().size() == 1) {
    EXPECT_NO_THROW(runtime().loader(Own{40}, mine));
    return;
  }
  const auto told = HasSubstr(runtime().size() == 2  // of more ranks, rank 0 is the odd one
                                  ? "compare_ranks is 0 on rank 1 and 1 on rank 0"
                                  : "compare_ranks is 1 on rank 0 and 0 on rank 1");
  EXPECT_THAT(error_of([&] { runtime().loader(Own{40}, mine); }), told);
  EXPECT_THAT(error_of([&] { runtime().validation_loader(Own{40}, mine); }), told);
}

TEST(LoadersOfRanks, MayDifferInWhatChangesNoBatch) {
  const bool is_last = runtime().rank() + 1 == runtime().size();
  const auto options = LoaderOptions().batch_size(4).workers(is_last ? 2 : 0);
  EXPECT_NO_THROW(runtime().loader(Own{40}, options));
}

TEST(LoadersOfRanks, MayDifferIfThatIsAskedForOnEveryRank) {
  const auto options = LoaderOptions().batch_size(4 + runtime().rank()).compare_ranks(false);
  EXPECT_NO_THROW(runtime().loader(Own{40}, options));
  EXPECT_NO_THROW(runtime().local_loader(Own{400}, options));
}

}  // namespace
}  // namespace lockstep
