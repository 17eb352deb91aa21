#pragma once

namespace lockstep {

/// Exit codes of programs that use lockstep. All are below 110 and none is 128 + n, so they cannot
/// be confused with mpirun's own codes.
enum class ExitCode : int {
  ok = 0,
  usage = 2,        // wrong arguments, options or calls
  environment = 3,  // wrong rank count, missing device, missing library
  data = 10,        // a data file is missing, truncated or malformed
  snapshot = 11,    // a snapshot cannot be used
  peer_lost = 20,   // a rank died or did not arrive in time; restart from the last snapshot
  diverged = 21,    // replicas differ that must be equal
  non_finite = 22,  // too many updates in a row were skipped: the skip budget is spent
  out_of_memory = 23,
  preempted = 75,  // stopped on request; a snapshot was saved
};

}  // namespace lockstep
