#pragma once

#include <cstdlib>
#include <string>

namespace lockstep::testing {

/// While it lives, programs that the test starts find a driver that says `made` (made_driver.cpp).
class MadeDriver {
 public:
  explicit MadeDriver(const std::string& made) {
    const std::string file = LOCKSTEP_MADE_DRIVER;
    if (const char* before = std::getenv("LD_LIBRARY_PATH")) {
      before_ = before;
    }
    setenv("LD_LIBRARY_PATH", (file.substr(0, file.rfind('/')) + ":" + before_).c_str(), 1);
    setenv("MADE_DRIVER", made.c_str(), 1);
  }
  ~MadeDriver() {
    setenv("LD_LIBRARY_PATH", before_.c_str(), 1);
    unsetenv("MADE_DRIVER");
  }
  MadeDriver(const MadeDriver&) = delete;
  MadeDriver& operator=(const MadeDriver&) = delete;

 private:
  std::string before_;
};

}  // namespace lockstep::testing
