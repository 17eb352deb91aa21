#pragma once

#include <lockstep/checkpointing/snapshot/impl/file_system.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep::testing {

/// The folder of a run under a second name, by hard links: what is removed or replaced in one stays
/// in the other.
void link_run(const std::string& from, const std::string& to);

/// A disk that fails, dies or loses power at a chosen call. Changes really happen, but nothing is
/// on the disk for good until it was synced: sync() and sync_folder() are only remembered.
/// Threads: any.
class FaultFileSystem : public snapshot::FileSystem,
                        public std::enable_shared_from_this<FaultFileSystem> {
 public:
  enum class Call { make_folder, create, write, sync, close, rename, sync_folder, remove };

  /// Calls since the last of these three.
  int calls() const;
  /// The call of this number (from 1 on) fails with this errno; all others work.
  void fail_at(int call, int reason);
  /// The call of this number is left half done, and nothing reaches the disk after it.
  void die_at(int call);
  /// From here on, calls for which this is true fail with the errno.
  void fail_where(std::function<bool(Call, const std::string& path)> condition, int reason);
  /// All works again.
  void heal();

  enum class Loss {
    nothing,  // the process was killed, the machine goes on
    data,     // names are as they were, content that was not synced is zeros
    names,    // also new, renamed and removed names are as they were at the last sync of the folder
  };
  /// What the machine finds when it is started again.
  void crash(Loss loss);

  void make_folder(const std::string& path) override;
  std::unique_ptr<snapshot::OutputFile> create_file(const std::string& path, mode_t mode) override;
  void rename(const std::string& from, const std::string& to) override;
  void sync_folder(const std::string& path) override;
  void remove_file(const std::string& path) override;
  void remove_folder(const std::string& path) override;

 private:
  class File;
  /// A change of names that a power loss may take back.
  struct Change {
    Call call;
    std::string path;
    std::string from;     // rename
    std::string content;  // of a file that was removed or replaced
    bool replaced = false;
  };

  /// Counts the call; runs it, half of it, or throws.
  void run(Call call, const std::string& path, const std::function<void()>& whole,
           const std::function<void()>& half = nullptr);
  void moved(const std::string& from, const std::string& to);
  void undo(const Change& change);

  mutable std::recursive_mutex mutex_;
  std::shared_ptr<snapshot::FileSystem> real_ = FileSystem::real();
  int calls_ = 0;
  int fail_at_ = 0;
  int die_at_ = 0;
  int reason_ = 0;
  std::function<bool(Call, const std::string&)> condition_;
  std::vector<std::string> unsynced_files_;
  std::vector<Change> unsynced_names_;
};

}  // namespace lockstep::testing
