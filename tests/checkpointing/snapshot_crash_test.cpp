#include "checkpointing/snapshot_fault_file_system.h"
#include "checkpointing/snapshot_sample.h"
#include "collectives/thread_ranks.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/impl/writer.h>
#include <lockstep/checkpointing/snapshot/newest.h>
#include <lockstep/collectives/exceptions.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep::snapshot {
namespace {

constexpr int kRanks = 2;

WriterOptions options_on(const std::shared_ptr<FaultFileSystem>& disk) {
  return WriterOptions().run("crash").keep(KeepOptions().last(2)).min_shard_bytes(1).files(disk);
}

Newest newest_in(const std::string& folder) {
  Communicator solo = Communicator::solo();
  return find_newest(folder, solo);
}

/// The snapshots of steps 1 and 2.
struct SavedRun {
  TemporaryFolder temporary;
  std::string folder = temporary.file("run");

  SavedRun() {
    const auto disk = std::make_shared<FaultFileSystem>();
    run_ranks(kRanks, [&](Communicator& ranks) {
      Writer writer(ranks, folder, options_on(disk));
      writer.save(sample_content(1, ranks.rank(), kRanks), 1);
      writer.save(sample_content(2, ranks.rank(), kRanks), 2);
    });
  }
};

/// A folder with them, of which saving step 3 will remove the first.
struct CrashRun {
  TemporaryFolder temporary;
  std::string folder = temporary.file("run");
  std::shared_ptr<FaultFileSystem> disk = std::make_shared<FaultFileSystem>();

  explicit CrashRun(const SavedRun& saved) { testing::link_run(saved.folder, folder); }

  /// Saves steps 3 and 4, with `arm` called once all is ready; an error ends neither. Returns for
  /// each rank the last step that it was told is saved.
  std::vector<int64_t> save_two(bool asynchronous, const std::function<void()>& arm) const {
    std::once_flag once;
    std::vector<int64_t> promised(kRanks, 2);
    run_ranks(kRanks, [&](Communicator& ranks) {
      Writer writer(ranks, folder, options_on(disk));
      const auto save = [&](int64_t step) {
        const Content content = sample_content(step, ranks.rank(), kRanks);
        if (!asynchronous) {
          return writer.save(content, step);
        }
        writer.start(content, step);
        return *writer.wait();
      };
      std::call_once(once, arm);
      ranks.barrier().wait();
      for (const int64_t step : {3, 4}) {
        try {
          if (!save(step).error) {
            promised[static_cast<size_t>(ranks.rank())] = step;
          }
        } catch (const Error&) {
          continue;
        }
      }
    });
    return promised;
  }

  /// Saves step 3, with `arm` called once all is ready. Returns each rank's report.
  std::vector<testing::RankOutcome> save_third(const std::function<void()>& arm) const {
    std::once_flag once;
    return outcomes(kRanks, [&](Communicator& ranks) {
      Writer writer(ranks, folder, options_on(disk));
      std::call_once(once, arm);
      ranks.barrier().wait();
      writer.save(sample_content(3, ranks.rank(), kRanks), 3);
    });
  }

  void expect_next_save_works() const {
    run_ranks(kRanks, [&](Communicator& ranks) {
      Writer writer(ranks, folder, options_on(disk));
      writer.save(sample_content(5, ranks.rank(), kRanks), 5);
    });
    const Newest newest = newest_in(folder);
    ASSERT_TRUE(newest.snapshot.has_value());
    EXPECT_EQ(newest.snapshot->manifest().step, 5);
    testing::expect_sample(*newest.snapshot, kRanks);
    for (const std::string& name : names_in(folder)) {
      EXPECT_FALSE(is_temporary_of(name, "crash")) << name;
    }
  }
};

bool returned(const std::vector<testing::RankOutcome>& ranks) {
  return ranks[0].kind == testing::RankOutcome::Kind::returned;
}

/// Ends the disk at one call of two saves, and expects what the documentation promises. Returns
/// whether there were fewer calls.
bool crash_at(const SavedRun& saved, int call, bool asynchronous, FaultFileSystem::Loss loss) {
  SCOPED_TRACE(c10::str(asynchronous ? "asynchronous" : "direct", ", crash at call ", call));
  const CrashRun run(saved);
  const auto promised = run.save_two(asynchronous, [&] { run.disk->die_at(call); });
  const bool all_calls_done = run.disk->calls() < call;
  EXPECT_EQ(promised[0], promised[1]);
  run.disk->crash(loss);
  const Newest newest = newest_in(run.folder);
  if (!newest.snapshot) {
    ADD_FAILURE() << "nothing can be loaded";
    return true;
  }
  EXPECT_THAT(newest.notes, ::testing::Each(HasSubstr("`latest`")));
  EXPECT_GE(newest.snapshot->manifest().step, all_calls_done ? 4 : promised[0]);
  testing::expect_sample(*newest.snapshot, kRanks);
  run.expect_next_save_works();
  return all_calls_done || ::testing::Test::HasFailure();
}

void crash_at_every_call(bool asynchronous, FaultFileSystem::Loss loss) {
  const SavedRun saved;
  int call = 1;
  while (!crash_at(saved, call, asynchronous, loss)) {
    ++call;
  }
  EXPECT_GT(call, 100);
}

TEST(CrashedSaves, KilledAtEveryCallTheNewestWholeSnapshotLoads) {
  crash_at_every_call(false, FaultFileSystem::Loss::nothing);
}

TEST(CrashedSaves, KilledAtEveryCallOfAThreadTheNewestWholeSnapshotLoads) {
  crash_at_every_call(true, FaultFileSystem::Loss::nothing);
}

TEST(CrashedSaves, PowerLostAtEveryCallWithUnsyncedContentGone) {
  crash_at_every_call(false, FaultFileSystem::Loss::data);
}

TEST(CrashedSaves, PowerLostAtEveryCallWithUnsyncedNamesGone) {
  crash_at_every_call(true, FaultFileSystem::Loss::names);
}

TEST(CrashedSaves, DiskFullAtAnyCallFailsOnAllRanksAndHarmsNothing) {
  const SavedRun saved;
  int failures = 0;
  for (int call = 1;; ++call) {
    SCOPED_TRACE(c10::str("disk full at call ", call));
    const CrashRun run(saved);
    const auto ranks = run.save_third([&] { run.disk->fail_at(call, ENOSPC); });
    if (run.disk->calls() < call) {
      break;
    }
    EXPECT_EQ(ranks[0].message, ranks[1].message);
    if (!returned(ranks)) {
      ++failures;
      EXPECT_EQ(ranks[0].kind, testing::RankOutcome::Kind::error);
      EXPECT_THAT(ranks[0].message, HasSubstr("No space left on device"));
      EXPECT_THAT(ranks[0].message, HasSubstr("rank "));
    }
    run.disk->heal();
    const Newest newest = newest_in(run.folder);
    ASSERT_TRUE(newest.snapshot.has_value());
    EXPECT_GE(newest.snapshot->manifest().step, returned(ranks) ? 3 : 2);
    testing::expect_sample(*newest.snapshot, kRanks);
    run.expect_next_save_works();
    if (::testing::Test::HasFailure()) {
      return;
    }
  }
  EXPECT_GT(failures, 40);
}

TEST(CrashedSaves, DiskFullOnOneRankIsReportedByNameAndLeavesNoFolder) {
  const CrashRun run{SavedRun()};
  const auto ranks = run.save_third([&] {
    run.disk->fail_where(
        [](FaultFileSystem::Call call, const std::string& path) {
          return call == FaultFileSystem::Call::write &&
                 path.find("random.rank-00001") != std::string::npos;
        },
        ENOSPC);
  });
  for (const testing::RankOutcome& rank : ranks) {
    EXPECT_EQ(rank.kind, testing::RankOutcome::Kind::error);
    EXPECT_THAT(rank.message, HasSubstr(": rank 1: "));
    EXPECT_THAT(rank.message, HasSubstr("random.rank-00001.safetensors"));
    EXPECT_THAT(rank.message, HasSubstr("No space left on device"));
  }
  EXPECT_EQ(names_in(run.folder),
            (std::vector<std::string>{"latest", "step-000000000001", "step-000000000002"}));
}

TEST(SnapshotLeftovers, ThatCannotBeRemovedEndNeitherTheRunNorItsNextStart) {
  for (const bool asynchronous : {false, true}) {
    const CrashRun run{SavedRun()};
    const auto arm = [&] {
      run.disk->fail_where(
          [](FaultFileSystem::Call call, const std::string& path) {
            return call == FaultFileSystem::Call::remove &&
                   path.find("step-000000000001.crash.tmp") != std::string::npos;
          },
          EBUSY);
    };
    EXPECT_EQ(run.save_two(asynchronous, arm), (std::vector<int64_t>{4, 4}));
    EXPECT_EQ(newest_in(run.folder).snapshot->manifest().step, 4);
    run_ranks(kRanks, [&](Communicator& ranks) {
      Writer writer(ranks, run.folder, options_on(run.disk));
      const SaveReport report = writer.save(sample_content(6, ranks.rank(), kRanks), 6);
      EXPECT_THAT(report.warnings,
                  ::testing::Contains(HasSubstr("an old snapshot was not removed: ")));
    });
    EXPECT_EQ(newest_in(run.folder).snapshot->manifest().step, 6);
    run.disk->heal();
    run.expect_next_save_works();
  }
}

}  // namespace
}  // namespace lockstep::snapshot
