#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

namespace lockstep::detail {

/// From now on no StopSignals of this process puts back what was done about its signals: they no
/// longer end the process, which is leaving with its snapshot saved. Nothing happens while a
/// ProcessGoesOn lives. Threads: any.
void keep_stop_signals() noexcept;

/// Says that the process goes on after lockstep, as a program does that has a guest.
class ProcessGoesOn {
 public:
  [[nodiscard]] ProcessGoesOn() noexcept;
  ~ProcessGoesOn();
  ProcessGoesOn(const ProcessGoesOn&) = delete;
  ProcessGoesOn& operator=(const ProcessGoesOn&) = delete;
};

}  // namespace lockstep::detail
