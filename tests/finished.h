#pragma once

#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <string>

namespace lockstep {

/// A shell command that has ended.
struct Finished {
  int code = -1;  // 128 and the signal's number after a signal
  std::string output;
  std::chrono::duration<double> time{};
};

inline Finished shell(const std::string& command) {
  Finished run;
  const auto start = std::chrono::steady_clock::now();
  FILE* pipe = popen(("(" + command + ") 2>&1").c_str(), "r");
  std::array<char, 4096> buffer{};
  for (size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    run.output.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  run.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  run.time = std::chrono::steady_clock::now() - start;
  return run;
}

}  // namespace lockstep
