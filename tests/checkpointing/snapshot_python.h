#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "finished.h"

namespace lockstep::testing {

/// Runs a program of Python, with the environment that has torch and safetensors, in `folder`.
/// Fails the test with what the program printed unless it ends with 0.
inline void expect_python(const std::string& folder, const std::string& program) {
  std::ofstream(folder + "/program.py") << program;
  const Finished run = shell("cd '" + folder + "' && '" LOCKSTEP_TEST_PYTHON "' -B program.py");
  EXPECT_EQ(run.code, 0) << run.output;
}

}  // namespace lockstep::testing
