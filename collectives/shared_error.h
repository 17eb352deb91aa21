#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/error.h>

#include <optional>
#include <string>

namespace lockstep {

/// Every rank's message, empty for a rank that did not fail, as one Error that quotes them all; its
/// exit code is that of the first rank that failed. Throws the same Error on every rank.
/// Ranks: collective; called when all ranks know that one of them failed.
[[noreturn]] void throw_on_every_rank(Communicator& communicator,
                                      const std::optional<std::string>& message,
                                      ExitCode code = ExitCode::usage);

/// Tells the other ranks, which are in throw_on_every_rank(), what went wrong here.
void tell_every_rank(Communicator& communicator, const std::string& message, ExitCode code);

}  // namespace lockstep
