#include "checkpointing/snapshot_fault_file_system.h"
#include "checkpointing/snapshot_sample.h"
#include "collectives/thread_ranks.h"
#include "runtime/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/folder_names.h>
#include <lockstep/checkpointing/snapshot/newest.h>
#include <lockstep/checkpointing/snapshot/writer.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep::snapshot {
namespace {

using testing::FaultFileSystem;
using ::testing::HasSubstr;
using testing::outcomes;
using testing::run_ranks;
using testing::sample_content;
using testing::TemporaryFolder;

constexpr int kRanks = 2;

WriterOptions options_on(const std::shared_ptr<FaultFileSystem>& disk) {
  return WriterOptions().run("crash").keep(KeepOptions().last(2)).min_shard_bytes(1).files(disk);
}

Newest newest_in(const std::string& folder) {
  Communicator solo = Communicator::solo();
  return find_newest(folder, solo);
}

/// A folder with the snapshots of steps 1 and 2, of which saving step 3 will remove the first.
struct CrashRun {
  TemporaryFolder temporary;
  std::string folder = temporary.file("run");
  std::shared_ptr<FaultFileSystem> disk = std::make_shared<FaultFileSystem>();

  CrashRun() {
    run_ranks(kRanks, [&](Communicator& ranks) {
      Writer writer(ranks, folder, options_on(disk));
      writer.save(sample_content(1, ranks.rank(), kRanks), 1);
      writer.save(sample_content(2, ranks.rank(), kRanks), 2);
    });
    disk->crash(FaultFileSystem::Loss::nothing);
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
      writer.save(sample_content(4, ranks.rank(), kRanks), 4);
    });
    const Newest newest = newest_in(folder);
    ASSERT_TRUE(newest.snapshot.has_value());
    EXPECT_EQ(newest.snapshot->manifest().step, 4);
    testing::expect_sample(*newest.snapshot, kRanks);
    for (const std::string& name : names_in(folder)) {
      EXPECT_FALSE(is_temporary_of(name, "crash")) << name;
    }
  }
};

bool returned(const std::vector<testing::RankOutcome>& ranks) {
  return ranks[0].kind == testing::RankOutcome::Kind::returned;
}

/// Ends the disk at every single call of a save. What was reported as saved must be there after
/// the crash, and what is there must be whole.
void crash_at_every_call(FaultFileSystem::Loss loss) {
  int points = 0;
  for (bool finished = false; !finished; ++points) {
    SCOPED_TRACE(c10::str("crash at call ", points + 1));
    const CrashRun run;
    const auto ranks = run.save_third([&] { run.disk->die_at(points + 1); });
    finished = run.disk->calls() <= points;
    EXPECT_EQ(returned(ranks), ranks[1].kind == testing::RankOutcome::Kind::returned);
    run.disk->crash(loss);
    const Newest newest = newest_in(run.folder);
    ASSERT_TRUE(newest.snapshot.has_value());
    EXPECT_THAT(newest.notes, ::testing::Each(HasSubstr("`latest`")));
    EXPECT_GE(newest.snapshot->manifest().step, returned(ranks) ? 3 : 2);
    testing::expect_sample(*newest.snapshot, kRanks);
    run.expect_next_save_works();
    if (::testing::Test::HasFailure()) {
      return;
    }
  }
  EXPECT_GT(points, 50);
}

TEST(SnapshotFacts, N01_KilledAtEveryCallTheNewestWholeSnapshotLoads) {
  crash_at_every_call(FaultFileSystem::Loss::nothing);
}

TEST(SnapshotFacts, N01_PowerLostAtEveryCallWithUnsyncedContentGone) {
  crash_at_every_call(FaultFileSystem::Loss::data);
}

TEST(SnapshotFacts, N01_PowerLostAtEveryCallWithUnsyncedNamesGone) {
  crash_at_every_call(FaultFileSystem::Loss::names);
}

TEST(SnapshotFacts, N02_DiskFullAtAnyCallFailsOnAllRanksAndHarmsNothing) {
  int failures = 0;
  for (int call = 1;; ++call) {
    SCOPED_TRACE(c10::str("disk full at call ", call));
    const CrashRun run;
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

TEST(SnapshotFacts, N02_DiskFullOnOneRankIsReportedByNameAndLeavesNoFolder) {
  const CrashRun run;
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
    EXPECT_THAT(rank.message, HasSubstr("rank 1 of 2: "));
    EXPECT_THAT(rank.message, HasSubstr("random.rank-00001.safetensors"));
    EXPECT_THAT(rank.message, HasSubstr("No space left on device"));
  }
  EXPECT_EQ(names_in(run.folder),
            (std::vector<std::string>{"latest", "step-000000000001", "step-000000000002"}));
}

}  // namespace
}  // namespace lockstep::snapshot
