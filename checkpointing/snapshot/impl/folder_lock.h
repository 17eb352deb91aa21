#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/impl/descriptor.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep::snapshot {

/// Keeps other jobs out of the folder of a run as long as this object exists. The file `lock` in
/// the folder names this job.
///
/// The system drops the lock of a process that dies, so a job that was killed locks nobody out. A
/// lock of another host, where this system sees no processes, holds while its file is touched
/// (every 5 s), and 30 s longer; an earlier attempt of the same scheduler's job, or of the same
/// `lockstep run`, does not count.
/// Within a process several objects may hold the lock. Ranks: rank 0. Threads: any.
class FolderLock {
 public:
  /// Throws Error (exit code snapshot) with host, process, start and job of the one that holds the
  /// lock, and changes nothing then.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// Throws Error if the file was removed or replaced: another job may write to the folder now.
  void require_held() const;

 private:
  bool try_open();
  bool is_in_place() const;
  void keep_fresh();

  std::string path_;
  lockstep::detail::Descriptor file_;
  bool is_shared_ = false;  // another object of this process holds the lock
  std::mutex mutex_;
  std::condition_variable end_;
  bool ended_ = false;
  std::thread toucher_;
};

}  // namespace lockstep::snapshot
