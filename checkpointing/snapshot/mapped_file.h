#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::snapshot {

/// Maps a regular file into memory, private to this process. Symbolic links are not followed.
///
/// The file must not become shorter while it is mapped (a finished snapshot never changes).
/// Errors: Error (exit code snapshot) with the reason from the system. Threads: any.
class MappedFile {
 public:
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  size_t size() const { return size_; }
  /// Writable. Changes are visible to this process alone and never reach the file.
  char* data() const { return data_; }
  std::string_view text() const { return {data_, size_}; }

 private:
  std::string path_;
  size_t size_ = 0;
  char* data_ = nullptr;
};

}  // namespace lockstep::snapshot
