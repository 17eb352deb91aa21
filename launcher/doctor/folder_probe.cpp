#include "doctor/folder_probe.h"

#include <fcntl.h>
#include <lockstep/collectives/impl/descriptor.h>
#include <lockstep/collectives/impl/seconds_since.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace lockstep::doctor {
namespace {

constexpr int64_t kSmall = 4096;

/// Empties the file, then writes and syncs so many bytes; returns whether all succeeded.
bool fill(int file, int64_t bytes) {
  const std::string block(size_t{1} << 20, 'x');
  if (ftruncate(file, 0) != 0 || lseek(file, 0, SEEK_SET) != 0) {
    return false;
  }
  for (int64_t written = 0; written < bytes;) {
    const ssize_t now = write(file, block.data(),
                              static_cast<size_t>(std::min<int64_t>(
                                  static_cast<int64_t>(block.size()), bytes - written)));
    if (now <= 0) {
      return false;
    }
    written += now;
  }
  return fsync(file) == 0;
}

}  // namespace

FolderProbe::FolderProbe(const std::string& folder, int64_t bytes) {
  facts_.path = folder;
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  std::string name = folder + "/.lockstep-doctor-XXXXXX";
  const detail::Descriptor file(mkostemp(name.data(), O_CLOEXEC));
  if (!file.is_open()) {
    facts_.error = std::strerror(errno);
    return;
  }
  path_ = name;
  for (const bool is_small : {false, true}) {
    const auto begin = std::chrono::steady_clock::now();
    const int64_t size = is_small ? kSmall : bytes;
    if (!fill(file.number(), size)) {
      facts_.error = std::strerror(errno);
      return;
    }
    if (is_small) {
      facts_.sync_seconds = detail::seconds_since(begin);
    } else {
      facts_.megabytes_per_second = static_cast<double>(size) * 1e-6 / detail::seconds_since(begin);
    }
  }
}

FolderProbe::~FolderProbe() {
  if (!path_.empty()) {
    unlink(path_.c_str());
  }
}

}  // namespace lockstep::doctor
