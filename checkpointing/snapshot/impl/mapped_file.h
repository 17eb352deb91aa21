#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/impl/file_mapping.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::snapshot {

/// Maps a regular file into memory, private to this process. Symbolic links are not followed.
///
/// The file must not become shorter while it is mapped (a complete snapshot never changes).
/// Errors: Error (exit code snapshot) with the reason from the system. Threads: any.
class MappedFile {
 public:
  explicit MappedFile(std::string path);

  const std::string& path() const { return path_; }
  size_t size() const { return mapping_.size(); }
  /// Writable. Changes are visible to this process alone and never reach the file.
  char* data() const { return mapping_.data(); }
  std::string_view text() const { return {data(), size()}; }

 private:
  std::string path_;
  lockstep::detail::FileMapping mapping_;
};

}  // namespace lockstep::snapshot
