#pragma once

#include <lockstep/collectives/check.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// The content of a data file, unpacked if it is gzip, with checks that name file and offset.
/// Offsets count unpacked bytes. Errors: Error with exit code data. Threads: any, when const.
class FileBytes {
 public:
  /// What the beginning of a file says about its size: throws if that is not size(). Only the first
  /// MiB is at data() then.
  using HeaderCheck = std::function<void(const FileBytes&)>;

  /// Throws if the file is missing, empty, not readable, a damaged gzip, or of another format that
  /// has a mark (tar, zip, HDF5, UTF-16, ...), which the message names. A gzip file that unpacks to
  /// more than 200 times its size is refused. No memory is taken for the whole file before all this
  /// and `check_header` have passed.
  explicit FileBytes(std::string path, const HeaderCheck& check_header = nullptr);

  const std::string& path() const { return path_; }
  /// Of the whole file.
  size_t size() const { return size_; }
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
  size_t size_ = 0;
  std::shared_ptr<std::vector<uint8_t>> bytes_;
};

}  // namespace lockstep::detail
