#pragma once

#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/file_mapping.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::detail {

/// A data file mapped into memory, private to this process, with checks that name file and offset.
/// The file must not become shorter while it is mapped.
/// Errors: Error with exit code data. Threads: any.
class MappedData {
 public:
  /// Throws if the file is missing, empty, not a regular file, or cannot be mapped.
  explicit MappedData(std::string path);

  const std::string& path() const { return path_; }
  size_t size() const { return mapping_.size(); }
  /// Writable. Changes are visible to this process alone and never reach the file.
  uint8_t* data() const { return reinterpret_cast<uint8_t*>(mapping_.data()); }
  std::string_view text() const { return {mapping_.data(), size()}; }

  /// Throws "FILE, byte OFFSET: " and the message.
  template <typename... Message>
  void check(bool condition, size_t offset, const Message&... message) const {
    LOCKSTEP_CHECK_CODE(condition, ExitCode::data, path_, ", byte ", offset, ": ", message...);
  }

 private:
  std::string path_;
  FileMapping mapping_;
};

}  // namespace lockstep::detail
