#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

namespace lockstep::detail {

/// Call when the process is about to leave with its snapshot saved. From then on destructors of
/// StopSignals leave the signals blocked and counted (except SIGINT), so that a late one does not
/// end the process. Does nothing while a ProcessGoesOn lives. Threads: any.
void keep_stop_signals() noexcept;

/// While it lives, the process counts as one that continues after lockstep (with a guest Runtime).
class ProcessGoesOn {
 public:
  [[nodiscard]] ProcessGoesOn() noexcept;
  ~ProcessGoesOn();
  ProcessGoesOn(const ProcessGoesOn&) = delete;
  ProcessGoesOn& operator=(const ProcessGoesOn&) = delete;
};

}  // namespace lockstep::detail
