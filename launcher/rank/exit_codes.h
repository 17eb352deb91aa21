#pragma once

#include <lockstep/collectives/exit_code.h>

namespace lockstep::launcher {

/// Codes that the launcher ends with itself, as numbers.
constexpr int exit_usage = static_cast<int>(ExitCode::usage);
constexpr int exit_environment = static_cast<int>(ExitCode::environment);
constexpr int exit_peer_lost = static_cast<int>(ExitCode::peer_lost);
constexpr int exit_preempted = static_cast<int>(ExitCode::preempted);

}  // namespace lockstep::launcher
