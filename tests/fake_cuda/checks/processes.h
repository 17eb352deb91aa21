#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "expect.h"

/// Settings are read once a process, and an error of a device ends its use: such a check is a case
/// of its own, which the program runs by starting itself again.
namespace fake_cuda::checks {

using Cases = std::map<std::string, std::function<void()>>;

struct Outcome {
  int exit_code = -1;
  std::string output;  // both streams
};

/// Runs a case of this program with these settings ("FAKE_CUDA_DEVICES=2 ...").
inline Outcome run_case(const std::string& name, const std::string& settings) {
  char self[4096] = "";
  if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0) {
    return {};
  }
  const std::string command = "env " + settings + " '" + self + "' " + name + " 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  Outcome outcome;
  char part[4096];
  for (size_t bytes = 0; (bytes = fread(part, 1, sizeof(part), pipe)) != 0;) {
    outcome.output.append(part, bytes);
  }
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

/// Runs a case and takes its failures for failures of this program.
inline Outcome check_case(const std::string& name, const std::string& settings = "") {
  Outcome outcome = run_case(name, settings);
  std::fputs(outcome.output.c_str(), stdout);
  expect(outcome.exit_code == 0, "case " + name + (settings.empty() ? "" : " with " + settings) +
                                     " ends with code " + std::to_string(outcome.exit_code));
  return outcome;
}

/// In the process of a case: runs it and gives the exit code.
inline int run_named(const Cases& cases, const char* name) {
  const auto found = cases.find(name);
  if (found == cases.end()) {
    return 2;
  }
  found->second();
  return failures == 0 ? 0 : 1;
}

}  // namespace fake_cuda::checks
