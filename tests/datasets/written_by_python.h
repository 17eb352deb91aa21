#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "runtime/temporary_folder.h"

namespace lockstep::testing {

/// A folder with the files of one kind from write_samples.py.
class WrittenByPython : public TemporaryFolder {
 public:
  explicit WrittenByPython(const std::string& kind) {
    const std::string command =
        std::string(LOCKSTEP_TEST_PYTHON) + " -B " + WRITE_SAMPLES + " " + kind + " " + path();
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
};

}  // namespace lockstep::testing
