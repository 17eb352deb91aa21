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
#include <lockstep/collectives/exit_code.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

namespace lockstep::snapshot {
namespace {

/// A disk whose new files wait until it is opened.
class GatedFileSystem : public FaultFileSystem {
 public:
  void shut() { set(false); }
  void open() { set(true); }

  std::unique_ptr<OutputFile> create_file(const std::string& path, mode_t mode) override {
    std::unique_lock lock(gate_);
    changed_.wait(lock, [&] { return is_open_; });
    lock.unlock();
    return FaultFileSystem::create_file(path, mode);
  }

 private:
  void set(bool is_open) {
    const std::lock_guard lock(gate_);
    is_open_ = is_open;
    changed_.notify_all();
  }

  std::mutex gate_;
  std::condition_variable changed_;
  bool is_open_ = true;
};

struct Fixture {
  TemporaryFolder folder;
  std::shared_ptr<GatedFileSystem> disk = std::make_shared<GatedFileSystem>();
  WriterOptions options = WriterOptions().run("async").min_shard_bytes(1).files(disk);

  Snapshot open(int64_t step) const { return Snapshot(folder.file(step_folder(step))); }
  bool has(int64_t step) const { return exists(folder.file(step_folder(step))); }
};

TEST(AsynchronousSaves, WeightsMayChangeWhileTheyAreWritten) {
  Fixture fixture;
  run_ranks(2, [&](Communicator& ranks) {
    Writer writer(ranks, fixture.folder.path(), fixture.options);
    for (int64_t step = 1; step <= 3; ++step) {
      ranks.barrier().wait();
      fixture.disk->shut();
      Content content = sample_content(step, ranks.rank(), 2);
      writer.start(content, step);
      for (const auto& [name, section] : content.sections()) {
        for (const auto& [tensor_name, tensor] : section.whole) {
          at::Tensor(tensor).fill_(-1);
        }
      }
      ranks.barrier().wait();
      EXPECT_FALSE(fixture.has(step));
      ranks.barrier().wait();
      fixture.disk->open();
      const auto report = writer.wait();
      ASSERT_TRUE(report.has_value());
      EXPECT_FALSE(report->error.has_value());
    }
  });
  for (int64_t step = 1; step <= 3; ++step) {
    testing::expect_sample(fixture.open(step), 2);
  }
}

TEST(FailedSaves, MemoryThatTheCopyOfOneRankDidNotGetIsCode23OnEveryRank) {
  for (const int size : {1, 2, 3}) {
    const Fixture fixture;
    run_ranks(size, [&](Communicator& ranks) {
      Writer writer(ranks, fixture.folder.path(), fixture.options);
      Content content = sample_content(1, ranks.rank(), size);
      const bool is_last = ranks.rank() == size - 1;
      content.add_own("random", "more",  // what no machine has memory for
                      at::zeros({1}).expand({is_last ? int64_t{1} << 50 : 1}));
      try {
        writer.start(content, 1);
        ADD_FAILURE() << "rank " << ranks.rank() << " threw nothing";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::out_of_memory);
        EXPECT_THAT(error.what(),
                    HasSubstr(c10::str("copying what is to be saved: rank ", size - 1, ": ")));
      }
      EXPECT_FALSE(writer.is_pending());
    });
  }
}

/// A disk that no file can be made on; with the error that this throws.
struct FailingFileSystem : FaultFileSystem {
  std::unique_ptr<OutputFile> create_file(const std::string& path, mode_t mode) override {
    if (fail && path.find("random.rank") != std::string::npos) {
      fail(path);
    }
    return FaultFileSystem::create_file(path, mode);
  }
  std::function<void(const std::string& path)> fail;
};

TEST(FailedSaves, TheCodeOfTheFirstRankThatFailedIsEveryRanks) {
  const std::vector<std::pair<ExitCode, std::function<void()>>> failures = {
      {ExitCode::data, [] { throw Error("made up", ExitCode::data); }},
      {ExitCode::out_of_memory, [] { throw std::bad_alloc(); }},
      {ExitCode::snapshot, [] { throw std::runtime_error("made up"); }},
  };
  for (const int size : {1, 2, 3}) {
    for (const auto& [code, fail] : failures) {
      const TemporaryFolder folder;
      const auto disk = std::make_shared<FailingFileSystem>();
      const auto options = WriterOptions().run("async").files(disk);
      const std::string last = c10::str("random.rank-0000", size - 1);
      disk->fail = [last, fail = fail](const std::string& path) {
        if (path.find(last) != std::string::npos) {
          fail();
        }
      };
      run_ranks(size, [&, code = code](Communicator& ranks) {
        Writer writer(ranks, folder.path(), options);
        writer.start(sample_content(1, ranks.rank(), size), 1);
        const auto report = writer.wait();
        ASSERT_TRUE(report.has_value());
        EXPECT_EQ(report->code, code);
        EXPECT_THAT(report->error.value_or(""), HasSubstr(c10::str(": rank ", size - 1, ": ")));
      });
      run_ranks(size, [&, code = code](Communicator& ranks) {
        try {
          Writer(ranks, folder.path(), options).save(sample_content(1, ranks.rank(), size), 1);
          ADD_FAILURE() << "rank " << ranks.rank() << " threw nothing";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), code);
        }
      });
    }
  }
}

TEST(AsynchronousSaves, SecondSaveWaitsForTheFirstAndTheExitDrains) {
  Fixture fixture;
  run_ranks(2, [&](Communicator& ranks) {
    Writer writer(ranks, fixture.folder.path(), fixture.options);
    ranks.barrier().wait();
    fixture.disk->shut();
    EXPECT_FALSE(writer.start(sample_content(1, ranks.rank(), 2), 1).previous.has_value());
    EXPECT_TRUE(writer.is_pending());
    EXPECT_FALSE(writer.poll().has_value());
    EXPECT_FALSE(fixture.has(1));
    ranks.barrier().wait();
    std::thread opener([&] { fixture.disk->open(); });
    const Writer::Started second = writer.start(sample_content(2, ranks.rank(), 2), 2);
    opener.join();
    ASSERT_TRUE(second.previous.has_value());
    EXPECT_EQ(second.previous->step, 1);
    EXPECT_FALSE(second.previous->error.has_value());
    EXPECT_TRUE(fixture.has(1));
  });
  testing::expect_sample(fixture.open(1), 2);
  testing::expect_sample(fixture.open(2), 2);
}

TEST(AsynchronousSaves, SaveReturnsBeforeTheDiskDoesAnything) {
  Fixture fixture;
  run_ranks(1, [&](Communicator& ranks) {
    Writer writer(ranks, fixture.folder.path(), fixture.options);
    fixture.disk->shut();
    writer.start(sample_content(1, 0, 1), 1);  // would wait for ever
    EXPECT_FALSE(writer.is_phase_done());
    fixture.disk->open();
    std::optional<SaveReport> report;
    while (!report) {
      report = writer.poll();
      std::this_thread::yield();
    }
    EXPECT_EQ(report->step, 1);
    EXPECT_GT(report->bytes, 0U);
    EXPECT_FALSE(writer.is_pending());
    EXPECT_FALSE(writer.is_phase_done()) << "no save has a phase";
  });
  testing::expect_sample(fixture.open(1), 1);
}

TEST(AsynchronousSaves, FailedAsynchronousSaveIsReportedOnAllRanksAndTrainingGoesOn) {
  Fixture fixture;
  run_ranks(2, [&](Communicator& ranks) {
    Writer writer(ranks, fixture.folder.path(), fixture.options);
    ranks.barrier().wait();
    if (ranks.rank() == 0) {
      fixture.disk->fail_where(
          [](FaultFileSystem::Call, const std::string& path) {
            return path.find("random.rank-00001") != std::string::npos;
          },
          ENOSPC);
    }
    ranks.barrier().wait();
    writer.start(sample_content(1, ranks.rank(), 2), 1);
    const auto failed = writer.wait();
    ASSERT_TRUE(failed.has_value() && failed->error.has_value());
    EXPECT_THAT(*failed->error, HasSubstr(": rank 1: "));
    EXPECT_THAT(*failed->error, HasSubstr("No space left"));
    ranks.barrier().wait();
    fixture.disk->heal();
    writer.start(sample_content(2, ranks.rank(), 2), 2);
    const auto worked = writer.wait();
    ASSERT_TRUE(worked.has_value());
    EXPECT_FALSE(worked->error.has_value());
  });
  EXPECT_FALSE(fixture.has(1));
  testing::expect_sample(fixture.open(2), 2);
}

TEST(FailedSaves, AFailedSaveRemovesWhatItCanAndSaysWhatItCannot) {
  Fixture fixture;
  const std::string left = fixture.folder.file("step-000000000001.async.tmp");
  run_ranks(2, [&](Communicator& ranks) {
    Writer writer(ranks, fixture.folder.path(), fixture.options);
    ranks.barrier().wait();
    if (ranks.rank() == 0) {
      fixture.disk->fail_where(
          [](FaultFileSystem::Call call, const std::string& path) {
            const bool is_own = path.find("random.rank-00001") != std::string::npos;
            return call == FaultFileSystem::Call::write
                       ? is_own
                       : call == FaultFileSystem::Call::remove &&
                             path.find("model") != std::string::npos;
          },
          EACCES);
    }
    ranks.barrier().wait();
    writer.start(sample_content(1, ranks.rank(), 2), 1);
    const auto failed = writer.wait();
    ASSERT_TRUE(failed.has_value() && failed->error.has_value());
    EXPECT_THAT(*failed->error, HasSubstr("the next save removes what is left of this one"));
    EXPECT_THAT(*failed->error, HasSubstr("Permission denied"));
  });
  for (const std::string& name : names_in(left)) {
    EXPECT_THAT(name, HasSubstr("model"));
  }
  EXPECT_FALSE(names_in(left).empty());
}

}  // namespace
}  // namespace lockstep::snapshot
