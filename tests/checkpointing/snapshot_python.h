#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include <sys/wait.h>

namespace lockstep::testing {

/// Runs a program of Python, with the environment that has torch and safetensors, in `folder`.
/// Fails the test with what the program printed unless it ends with 0.
inline void expect_python(const std::string& folder, const std::string& program) {
  std::ofstream(folder + "/program.py") << program;
  const std::string command =
      "cd '" + folder + "' && '" LOCKSTEP_TEST_PYTHON "' -B program.py 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  for (int next = std::fgetc(pipe); next != EOF; next = std::fgetc(pipe)) {
    output.push_back(static_cast<char>(next));
  }
  const int status = pclose(pipe);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << output;
}

}  // namespace lockstep::testing
