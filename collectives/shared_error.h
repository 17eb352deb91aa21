#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/error.h>

#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// What each rank said, in the order of ranks, empty for nothing, as one text: "rank 1: no disk".
/// Ranks that said the same are named together: "ranks 0-3: no disk". `of` follows the ranks.
std::string quoted(const std::vector<std::string>& messages, const std::string& of = "");

/// Every rank's message, none for a rank that did not fail, as one Error that quotes them all; its
/// exit code is that of the first rank that failed. Throws the same Error on every rank.
/// Ranks: collective; called when all ranks know that one of them failed.
[[noreturn]] void throw_on_every_rank(Communicator& communicator,
                                      const std::optional<std::string>& message,
                                      ExitCode code = ExitCode::usage);

/// The same on the rank that failed because of `cause`: there the Error that all ranks throw has
/// that exception nested in it (std::rethrow_if_nested).
[[noreturn]] void throw_on_every_rank(Communicator& communicator, const Error& mine,
                                      const std::exception_ptr& cause);

}  // namespace lockstep
