#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/impl/descriptor.h>

#include <cstddef>

namespace lockstep::detail {

/// Maps a regular file into memory, private to this process: changes never reach the file. The file
/// must not become shorter meanwhile. Threads: any.
class FileMapping {
 public:
  enum class Result { mapped, not_regular, failed };

  FileMapping() = default;
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  /// Call once; the descriptor may be closed afterwards. An empty file has no memory. If the result
  /// is `failed`, errno says why.
  Result map(const Descriptor& file);

  size_t size() const { return size_; }
  char* data() const { return data_; }

 private:
  size_t size_ = 0;
  char* data_ = nullptr;
};

}  // namespace lockstep::detail
