#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <csignal>

namespace lockstep::detail {

/// While the object lives, this thread and the threads that it starts block all signals except
/// faults, so that the program's own threads get them.
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
