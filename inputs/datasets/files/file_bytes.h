#pragma once

#include <lockstep/collectives/check.h>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// The content of a data file, unpacked if it is gzip, with checks that name file and offset.
/// Offsets count unpacked bytes. Errors: Error with exit code data. Threads: any, when const.
class FileBytes {
 public:
  /// Throws if the file is missing, empty, not readable, a damaged gzip, or packed in another
  /// format (tar, zip, xz, bzip2, zstd), which the message names.
  explicit FileBytes(std::string path);

  const std::string& path() const { return path_; }
  size_t size() const { return bytes_->size(); }
  const uint8_t* data() const { return bytes_->data(); }
  /// Shared ownership of the bytes, for tensors that use them.
  std::shared_ptr<std::vector<uint8_t>> share() const { return bytes_; }

  /// Throws "FILE, byte OFFSET: " and the message.
  template <typename... Message>
  void check(bool condition, size_t offset, const Message&... message) const {
    LOCKSTEP_CHECK_CODE(condition, ExitCode::data, path_, ", byte ", offset, ": ", message...);
  }

 private:
  std::string path_;
  std::shared_ptr<std::vector<uint8_t>> bytes_;
};

}  // namespace lockstep::detail
