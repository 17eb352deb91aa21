#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

/// What the check programs of memory/ share: no test framework, so that they link in a second.
namespace fake_cuda::checks {

inline int failures = 0;

inline void expect(bool holds, const std::string& what) {
  std::printf("%s %s\n", holds ? "ok    " : "FAILED", what.c_str());
  std::fflush(stdout);
  failures += holds ? 0 : 1;
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// What the function prints to the standard error.
template <typename Function>
std::string printed_by(Function function) {
  std::fflush(stderr);
  char name[] = "/tmp/fake_cuda_check_XXXXXX";
  const int file = mkstemp(name);
  unlink(name);
  const int before = dup(STDERR_FILENO);
  dup2(file, STDERR_FILENO);
  function();
  std::fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(before);
  std::string text(static_cast<size_t>(lseek(file, 0, SEEK_END)), '\0');
  const ssize_t bytes = pread(file, text.data(), text.size(), 0);
  close(file);
  text.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
  return text;
}

}  // namespace fake_cuda::checks
