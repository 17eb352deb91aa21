// One folder, one job.
#include "checkpointing/snapshot_rejected.h"
#include "checkpointing/snapshot_sample.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"
#include "threads_that_block.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/folder_lock.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/impl/mapped_file.h>
#include <lockstep/checkpointing/snapshot/impl/writer.h>
#include <lockstep/checkpointing/snapshot/newest.h>
#include <lockstep/checkpointing/snapshot/write/background_task.h>
#include <lockstep/collectives/impl/process_mark.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <optional>
#include <string>

namespace lockstep::snapshot {
namespace {

/// A job in a process of its own that holds the lock of a folder until it is killed.
/// `has_child`: it has forked a process that lives until this object ends, with its files open.
class OtherJob {
 public:
  explicit OtherJob(const std::string& folder, bool has_child = false) {
    int ends[2];
    int child_ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    EXPECT_EQ(::pipe(child_ends), 0);
    process_ = ::fork();
    if (process_ == 0) {
      const FolderLock lock(folder);
      ::close(child_ends[1]);
      if (has_child && ::fork() == 0) {
        char never = 0;
        ::_exit(::read(child_ends[0], &never, 1) == 0 ? 0 : 1);
      }
      char held = 1;
      const bool told = ::write(ends[1], &held, 1) == 1;
      while (told) {
        ::pause();
      }
      ::_exit(1);
    }
    char held = 0;
    EXPECT_EQ(::read(ends[0], &held, 1), 1);
    ::close(ends[0]);
    ::close(ends[1]);
    ::close(child_ends[0]);
    child_ = child_ends[1];
  }
  ~OtherJob() {
    kill();
    ::close(child_);
  }
  void kill() {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
      process_ = 0;
    }
  }
  pid_t process() const { return process_; }

 private:
  pid_t process_ = 0;
  int child_ = -1;
};

/// What anybody who may read a file can do: lock it.
class Stranger {
 public:
  explicit Stranger(const std::string& path) : file_(::open(path.c_str(), O_RDONLY)) {
    EXPECT_EQ(::flock(file_, LOCK_SH | LOCK_NB), 0);
  }
  ~Stranger() { ::close(file_); }

 private:
  int file_;
};

std::string lock_text(const TemporaryFolder& folder) {
  return std::string(MappedFile(folder.file(kLockName)).text());
}

/// Leaves the lock of a job on another host, touched that long ago.
void leave_lock(const TemporaryFolder& folder, const std::string& more, int64_t seconds_ago) {
  std::ofstream(folder.file(kLockName)) << "host far-away\nprocess 4711\nstart noon\n" << more;
  const timespec touched = {::time(nullptr) - seconds_ago, 0};
  const timespec times[] = {touched, touched};
  EXPECT_EQ(::utimensat(AT_FDCWD, folder.file(kLockName).c_str(), times, 0), 0);
}

TEST(FolderLock, ASecondJobEndsAtOnceNamesTheFirstAndLosesNothing) {
  const TemporaryFolder folder;
  Writer(Communicator::solo(), folder.path()).save(testing::sample_content(1, 0, 1), 1);
  OtherJob other(folder.path());
  const std::string text = rejection_of([&] { Writer{Communicator::solo(), folder.path()}; });
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
  EXPECT_THAT(text, AllOf(HasSubstr(folder.file("lock")),
                          HasSubstr("process " + std::to_string(other.process()) + " on " + host),
                          HasSubstr("which started 20"), HasSubstr("name another folder")));
  EXPECT_EQ(find_newest(folder.path(), Communicator::solo()).snapshot->manifest().step, 1);
}

TEST(FolderLock, OfAKilledJobLocksNobodyOut) {
  const TemporaryFolder folder;
  OtherJob other(folder.path());
  other.kill();
  EXPECT_TRUE(exists(folder.file(kLockName)));
  EXPECT_NO_THROW(FolderLock{folder.path()});
}

TEST(FolderLock, OfAKilledJobLocksNobodyOutThoughAChildOfItLives) {
  const TemporaryFolder folder;
  OtherJob other(folder.path(), /*has_child=*/true);
  EXPECT_THAT(rejection_of([&] { FolderLock{folder.path()}; }),
              HasSubstr("process " + std::to_string(other.process())));
  other.kill();
  const FolderLock lock(folder.path());
  EXPECT_NO_THROW(lock.require_held());
  EXPECT_THAT(lock_text(folder), HasSubstr("process " + std::to_string(::getpid()) + "\n"));
}

TEST(FolderLock, OfAKilledJobLocksNobodyOutThoughAReaderOfTheFolderLocksIt) {
  const TemporaryFolder folder;
  OtherJob other(folder.path());
  other.kill();
  const Stranger stranger(folder.file(kLockName));
  const FolderLock lock(folder.path());
  EXPECT_NO_THROW(lock.require_held());
}

TEST(FolderLock, OfAProcessWhoseNumberAnotherProcessHasNowLocksNobodyOut) {
  const TemporaryFolder folder;
  { const FolderLock lock(folder.path()); }
  OtherJob other(folder.path());
  const std::string process = std::to_string(other.process());
  std::string text = lock_text(folder);
  other.kill();
  const std::string mark = text.substr(text.find("mark ") + 5);
  auto earlier = lockstep::detail::mark_of(1).value();
  earlier.start += 1;
  text.replace(text.find("mark "), 5 + mark.find('\n'), "mark " + to_text(earlier));
  text.replace(text.find("process " + process), 8 + process.size(), "process 1");
  std::ofstream(folder.file(kLockName)) << text;
  const Stranger stranger(folder.file(kLockName));
  EXPECT_NO_THROW(FolderLock{folder.path()});
}

TEST(FolderLock, OfAJobThatHasNotWrittenItsNameYetHolds) {
  const TemporaryFolder folder;
  std::ofstream(folder.file(kLockName)) << "";
  {
    const Stranger other(folder.file(kLockName));
    EXPECT_THAT(rejection_of([&] { FolderLock{folder.path()}; }), HasSubstr("is just starting"));
  }
  EXPECT_NO_THROW(FolderLock{folder.path()});
}

TEST(FolderLock, HasTheRightsThatTheUserGivesToFiles) {
  for (const mode_t mask : {mode_t{022}, mode_t{077}, mode_t{002}}) {
    const TemporaryFolder folder;
    const mode_t before = ::umask(mask);
    const FolderLock lock(folder.path());
    ::umask(before);
    struct stat info {};
    ASSERT_EQ(::stat(folder.file(kLockName).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0666 & ~mask);
  }
}

TEST(FolderLock, IsRemovedAtTheEndOfTheJob) {
  const TemporaryFolder folder;
  { const FolderLock lock(folder.path()); }
  EXPECT_FALSE(exists(folder.file(kLockName)));
}

TEST(FolderLock, WritersOfOneProcessShareIt) {
  const TemporaryFolder folder;
  std::optional<FolderLock> first(folder.path());
  const FolderLock second(folder.path());
  EXPECT_NO_THROW(first->require_held());
  EXPECT_NO_THROW(second.require_held());
}

TEST(FolderLock, LeavesTheSignalsOfTheProgramToItsOwnThreads) {
  const TemporaryFolder folder;
  const int before = threads_that_block(SIGUSR2);
  const FolderLock lock(folder.path());
  EXPECT_EQ(threads_that_block(SIGUSR2), before + 1);
  EXPECT_EQ(threads_that_block(SIGSEGV), 0);
}

TEST(BackgroundTask, LeavesTheSignalsOfTheProgramToItsOwnThreads) {
  const int before = threads_that_block(SIGUSR2);
  int within = 0;
  BackgroundTask task;
  task.start([&] { within = threads_that_block(SIGUSR2); });
  task.join();
  EXPECT_EQ(within, before + 1);
}

TEST(FolderLock, OfAnotherHostHoldsWhileItIsTouched) {
  const TemporaryFolder folder;
  leave_lock(folder, "job 815\n", 10);
  EXPECT_THAT(rejection_of([&] { FolderLock{folder.path()}; }),
              AllOf(HasSubstr("process 4711 on far-away"), HasSubstr("started noon as job 815")));
  EXPECT_THAT(lock_text(folder), HasSubstr("far-away"));
  leave_lock(folder, "job 815\n", 40);
  EXPECT_NO_THROW(FolderLock{folder.path()});
}

TEST(FolderLock, OfAnEarlierAttemptOfTheSameJobCountsNoMore) {
  const TemporaryFolder folder;
  ::setenv("SLURM_JOB_ID", "815", 1);
  ::setenv("SLURM_RESTART_COUNT", "1", 1);
  leave_lock(folder, "job 815\nattempt 1\n", 0);
  EXPECT_THAT(rejection_of([&] { FolderLock{folder.path()}; }), HasSubstr("far-away"));
  leave_lock(folder, "job 815\nattempt \n", 0);
  EXPECT_NO_THROW(FolderLock{folder.path()});
  ::unsetenv("SLURM_JOB_ID");
  ::unsetenv("SLURM_RESTART_COUNT");
}

TEST(FolderLock, OfAnAttemptBeforeOfTheSameLauncherCountsNoMore) {
  const TemporaryFolder folder;
  ::setenv("LOCKSTEP_LAUNCH", "cafe", 1);
  ::setenv("LOCKSTEP_ATTEMPT", "1", 1);
  leave_lock(folder, "launch cafe\nlaunch-attempt 1\n", 0);
  EXPECT_THAT(rejection_of([&] { FolderLock{folder.path()}; }), HasSubstr("far-away"));
  leave_lock(folder, "launch babe\nlaunch-attempt 0\n", 0);
  EXPECT_THAT(rejection_of([&] { FolderLock{folder.path()}; }), HasSubstr("far-away"));
  leave_lock(folder, "launch cafe\nlaunch-attempt 0\n", 0);
  EXPECT_NO_THROW(FolderLock{folder.path()});
  ::unsetenv("LOCKSTEP_LAUNCH");
  ::unsetenv("LOCKSTEP_ATTEMPT");
}

TEST(FolderLock, OfAnAttemptBeforeIsTakenAlsoFromAProcessThatLives) {
  const TemporaryFolder folder;
  ::setenv("LOCKSTEP_LAUNCH", "cafe", 1);
  ::setenv("LOCKSTEP_ATTEMPT", "0", 1);
  const OtherJob before(folder.path());
  ::setenv("LOCKSTEP_ATTEMPT", "1", 1);
  const FolderLock lock(folder.path());
  EXPECT_NO_THROW(lock.require_held());
  EXPECT_THAT(lock_text(folder), HasSubstr("launch-attempt 1\n"));
  ::unsetenv("LOCKSTEP_LAUNCH");
  ::unsetenv("LOCKSTEP_ATTEMPT");
}

TEST(FolderLock, ASaveAfterTheLockWasRemovedIsRefused) {
  const TemporaryFolder folder;
  Writer writer(Communicator::solo(), folder.path());
  ASSERT_EQ(::unlink(folder.file(kLockName).c_str()), 0);
  EXPECT_THAT(rejection_of([&] { writer.save(testing::sample_content(1, 0, 1), 1); }),
              HasSubstr("was removed or replaced"));
}

}  // namespace
}  // namespace lockstep::snapshot
