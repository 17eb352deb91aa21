#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/file_system.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// A folder of this user alone, somewhere below a folder that users share, such as /dev/shm.
/// Whoever else could change it would choose the weights with which a run goes on.
///
/// Each check walks down from the root of the file system and follows no link. The shared folder,
/// and all that it is in, must belong to root or to this user, and nobody else may write there,
/// except where the sticky bit keeps users from renaming what is not theirs. Below it, each folder
/// must belong to this user, with no right for others. Then nobody else can replace any of them.
/// Ranks: local. Threads: any. Errors: Error (exit code snapshot) that names the first folder or
/// file that is not as it must be, why, and what to do.
class PrivateFolder {
 public:
  /// `shared`: the folder that users share; links that lead to it are followed here and not again.
  /// `levels`: the names of the folders below it, each in the one before.
  PrivateFolder(const std::string& shared, std::vector<std::string> levels);

  const std::string& path() const { return path_; }
  /// Makes what is missing, for this user alone whatever the umask is, and checks all of it.
  void make() const;
  /// Checks the folders that are there.
  void check() const;
  /// Checks also what is in the innermost one: folders and regular files of this user, nothing
  /// else.
  void check_content() const;
  /// Takes the rights of others from a file in the folder.
  void close_to_others(const std::string& file) const;
  /// FileSystem::current() for what is in this folder: checks the folders before each change, and
  /// makes folders and files for this user alone.
  std::shared_ptr<FileSystem> files() const;

 private:
  class Files;
  class Walk;

  std::vector<std::string> names_;  // of all folders from the root on
  size_t shared_;                   // so many of them are not this user's alone
  std::string path_;
};

}  // namespace lockstep::snapshot
