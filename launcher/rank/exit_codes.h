#pragma once

namespace lockstep::launcher {

/// The launcher's own exit codes, lockstep::ExitCode's values; the launcher links no library.
constexpr int exit_usage = 2;
constexpr int exit_environment = 3;
constexpr int exit_peer_lost = 20;
constexpr int exit_preempted = 75;

}  // namespace lockstep::launcher
