#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/exceptions.h>
#include <exception>

namespace lockstep::detail {

/// Converts any exception to an Error with an exit code. An Error stays as it is; errors of CUDA
/// have the codes of cuda_errors.h. out_of_memory: host or device memory could not be allocated.
/// peer_lost: a device failed, and this process cannot use it again. usage: everything else, also
/// calls that a capture does not allow. The text has LibTorch's backtrace only if
/// LOCKSTEP_BACKTRACE is 1.
Error as_error(const std::exception_ptr& exception);

}  // namespace lockstep::detail
