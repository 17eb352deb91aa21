#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/exceptions.h>
#include <exception>

namespace lockstep::detail {

/// What an exception of any kind means for the run: an Error as it is; out_of_memory where memory
/// of the host or of a device could not be had; peer_lost where a device failed, which this process
/// cannot use again; usage with what() for everything else, a device-side assertion (an index out
/// of range) and what cannot be captured, too. The text is without LibTorch's backtrace, unless the
/// environment variable LOCKSTEP_BACKTRACE is 1.
Error as_error(const std::exception_ptr& exception);

}  // namespace lockstep::detail
