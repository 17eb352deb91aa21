#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <csignal>

namespace lockstep::detail {

/// While an object of it lives, this thread blocks all signals but those of faults, and so do the
/// threads that it starts: signals go to the program's own threads.
class BlockedSignals {
 public:
  [[nodiscard]] BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_ = {};
};

}  // namespace lockstep::detail
