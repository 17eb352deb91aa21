#pragma once

namespace lockstep::detail {

/// From now on no StopSignals of this process puts back what was done about its signals: they no
/// longer end the process, which is leaving with its snapshot saved. Threads: any.
void keep_stop_signals() noexcept;

}  // namespace lockstep::detail
