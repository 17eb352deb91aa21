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
/// The system drops the lock of a process that dies, so a killed job blocks nobody. A lock of
/// another host, whose processes cannot be seen, is valid until its file has not been touched for
/// 30 s (it is touched every 5 s). A lock of an earlier attempt of the same scheduler job or
/// `lockstep run` does not count.
/// Several objects of a process may hold the lock. Ranks: rank 0. Threads: any.
class FolderLock {
 public:
  /// Throws Error (exit code snapshot) with host, process, start time and job of the owner if
  /// another job holds the lock.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// Throws Error if the file was removed or replaced: another job may use the folder then.
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
