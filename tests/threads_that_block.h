#pragma once

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace lockstep::testing {

/// Threads of this process in which the signal is blocked now.
inline int count_blocking_threads(int signal) {
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

/// Threads of this process in which the signal is blocked. glibc creates a thread with all signals
/// blocked, SIGSEGV too, and gives it its own mask once it runs: a thread that does not run yet is
/// waited for.
inline int threads_that_block(int signal) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (count_blocking_threads(SIGSEGV) > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  return count_blocking_threads(signal);
}

}  // namespace lockstep::testing
