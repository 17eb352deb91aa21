#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace lockstep::testing {

/// Threads of this process in which the signal is blocked.
inline int threads_that_block(int signal) {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("SigBlk:", 0) == 0) {
        count += static_cast<int>(std::stoull(line.substr(8), nullptr, 16) >> (signal - 1) & 1);
      }
    }
  }
  return count;
}

}  // namespace lockstep::testing
