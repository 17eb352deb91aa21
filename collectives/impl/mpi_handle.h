#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <cstdint>

namespace lockstep::detail {

/// A handle of the MPI library of this process, whichever that is: a pointer in Open MPI, an int in
/// MPICH. 0 is the null handle of its kind.
using MpiHandle = std::uintptr_t;
/// A message or a collective under way; its memory must stay until a test found it complete.
using MpiRequest = MpiHandle;

/// A message that has arrived.
struct MpiEnvelope {
  int source = 0;
  int tag = 0;
  int bytes = 0;
};
/// In place of a rank to receive from.
constexpr int kAnyMpiSource = -1;

}  // namespace lockstep::detail
