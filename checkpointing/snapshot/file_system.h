#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// A file being written. Errors: Error (exit code snapshot) with path and the system's reason.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  virtual void write(const void* data, size_t bytes) = 0;
  /// Returns once the content is on the disk.
  virtual void sync() = 0;
  virtual void close() = 0;
};

/// Every change that saving makes to the disk goes through here, so that tests can fail or end it
/// at each single call.
///
/// Errors: Error (exit code snapshot) with path and the system's reason. Threads: any.
class FileSystem {
 public:
  /// The one of this machine.
  static std::shared_ptr<FileSystem> real();
  virtual ~FileSystem() = default;

  /// Makes the folder and those above it; one that exists is fine.
  virtual void make_folder(const std::string& path) = 0;
  /// A new file; one that exists is an error.
  virtual std::unique_ptr<OutputFile> create_file(const std::string& path) = 0;
  /// Atomic; a file at `to` is replaced.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  /// Returns once the entries of the folder (new, renamed and removed names) are on the disk.
  virtual void sync_folder(const std::string& path) = 0;
  virtual void remove_file(const std::string& path) = 0;
  virtual void remove_folder(const std::string& path) = 0;
};

/// Whether there is anything of this name.
bool exists(const std::string& path);
/// The names in a folder, sorted; none where there is no such folder.
std::vector<std::string> names_in(const std::string& folder);
/// Removes a folder of plain files and the files in it.
void remove_folder_of_files(FileSystem& files, const std::string& folder);
/// Writes a small file: content on disk, name not yet (see sync_folder).
void write_file(FileSystem& files, const std::string& path, const std::string& content);

}  // namespace lockstep::snapshot
