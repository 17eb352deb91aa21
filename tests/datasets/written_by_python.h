#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "runtime/temporary_folder.h"

namespace lockstep::testing {

/// Runs write_samples.py.
inline void written_by_python(const std::string& kind, const std::string& folder) {
  const std::string command =
      std::string(LOCKSTEP_TEST_PYTHON) + " -B " + WRITE_SAMPLES + " " + kind + " " + folder;
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

/// A folder with the files of one kind from write_samples.py.
class WrittenByPython : public TemporaryFolder {
 public:
  explicit WrittenByPython(const std::string& kind) { written_by_python(kind, path()); }
};

}  // namespace lockstep::testing
