#pragma once

#include <lockstep/collectives/exceptions.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace lockstep::testing {

/// Passes the bytes to `read` as the name of a file that is in memory only. Aborts if it throws
/// anything but an Error with the exit code of data.
template <typename Read>
int read_as_file(const uint8_t* data, size_t size, const Read& read) {
  static const int file = memfd_create("lockstep-fuzz", 0);
  if (file < 0 || ftruncate(file, 0) != 0 ||
      pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) {
    std::abort();
  }
  try {
    read("/proc/self/fd/" + std::to_string(file));
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) {
      std::abort();
    }
  }
  return 0;
}

}  // namespace lockstep::testing
