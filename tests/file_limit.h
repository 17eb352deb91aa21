#pragma once

#include <sys/resource.h>

#include <csignal>

namespace lockstep::testing {

/// No file may grow beyond `bytes` meanwhile.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    static_cast<void>(std::signal(SIGXFSZ, handler_));
  }

 private:
  void (*handler_)(int);
  rlimit before_ = {};
};

}  // namespace lockstep::testing
