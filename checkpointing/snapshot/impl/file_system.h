#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// A file that is open for writing. Errors: Error (exit code snapshot) with the path and the reason
/// from the system.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  virtual void write(const void* data, size_t bytes) = 0;
  /// Returns once the content is on the disk.
  virtual void sync() = 0;
  virtual void close() = 0;
};

/// The interface through which saving makes every change to the disk. Tests replace it to make any
/// single call fail, or to end the process there.
///
/// Errors: Error (exit code snapshot) with the path and the reason from the system. Threads: any.
class FileSystem {
 public:
  /// The file system of this machine.
  static std::shared_ptr<FileSystem> real();
  /// The file system of the innermost FileSystemScope; without one, real().
  static std::shared_ptr<FileSystem> current();
  virtual ~FileSystem() = default;

  /// Creates the folder and its parents; no error if it exists.
  virtual void make_folder(const std::string& path) = 0;
  /// Creates a new file with this mode; an error if `path` exists.
  virtual std::unique_ptr<OutputFile> create_file(const std::string& path, mode_t mode) = 0;
  /// Renames atomically; replaces a file at `to`.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  /// Returns once the entries of the folder (new, renamed and removed names) are on the disk.
  virtual void sync_folder(const std::string& path) = 0;
  virtual void remove_file(const std::string& path) = 0;
  virtual void remove_folder(const std::string& path) = 0;
};

constexpr mode_t kFileMode = 0666;         // less the umask
constexpr mode_t kPrivateFileMode = 0600;  // whatever the umask is

/// Makes `files` the current file system of this process until the scope is destroyed. For tests
/// that inject faults. Threads: no other thread may make a writer meanwhile.
class FileSystemScope {
 public:
  [[nodiscard]] explicit FileSystemScope(std::shared_ptr<FileSystem> files);
  ~FileSystemScope();
  FileSystemScope(const FileSystemScope&) = delete;
  FileSystemScope& operator=(const FileSystemScope&) = delete;

 private:
  std::shared_ptr<FileSystem> before_;
};

/// The absolute path, without `.`, `..` and trailing slashes: it stays valid when the program
/// changes its working directory. Empty if `path` is.
std::string absolute_path(const std::string& path);
/// Whether a file, folder or link with this path exists.
bool exists(const std::string& path);
/// The names in a folder, sorted; empty if there is no such folder.
std::vector<std::string> names_in(const std::string& folder);
/// Removes a folder that holds only plain files, and those files. If a file cannot be removed, the
/// other files are, and the folder stays; throws the Error of the first such file.
void remove_folder_of_files(FileSystem& files, const std::string& folder);
/// Writes a small file. Its content is on the disk then; its name only after sync_folder().
void write_file(FileSystem& files, const std::string& path, const std::string& content,
                mode_t mode = kFileMode);
/// The same, in place of the file of this name, if there is one: a reader sees the old content or
/// the new one.
void replace_file(FileSystem& files, const std::string& path, const std::string& content,
                  mode_t mode = kFileMode);
/// No error if there is no such file.
void remove_if_there(FileSystem& files, const std::string& path);

}  // namespace lockstep::snapshot
