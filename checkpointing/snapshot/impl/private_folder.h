#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/file_system.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// A folder that only this user can use, below a folder that users share, such as /dev/shm. If
/// others could change it, they could choose the weights with which a run resumes.
///
/// Each check walks down from the root of the file system and follows no link. The shared folder
/// and its parents must belong to root or to this user, and others may not write there, unless the
/// sticky bit keeps them from renaming files of this user. Each folder below must belong to this
/// user, without rights for others. Then nobody else can replace any of them. Ranks: local.
/// Threads: any. Errors: Error (exit code snapshot) that names the first wrong folder or file, the
/// reason, and what to do.
class PrivateFolder {
 public:
  /// `shared`: the folder that users share; links to it are followed here only. `levels`: the names
  /// of the nested folders below it.
  PrivateFolder(const std::string& shared, std::vector<std::string> levels);

  const std::string& path() const { return path_; }
  /// Makes missing folders, for this user alone whatever the umask is, and checks all of them.
  void make() const;
  /// Checks the folders that exist.
  void check() const;
  /// Also checks that the innermost folder has only folders and regular files of this user.
  void check_content() const;
  /// Removes the rights of other users on a file in the folder.
  void close_to_others(const std::string& file) const;
  /// FileSystem::current() for use in this folder: checks the folders before each change, and makes
  /// folders and files for this user alone.
  std::shared_ptr<FileSystem> files() const;

 private:
  class Files;
  class Walk;

  std::vector<std::string> names_;  // of all folders below the root
  size_t shared_;                   // how many of them are not private
  std::string path_;
};

}  // namespace lockstep::snapshot
