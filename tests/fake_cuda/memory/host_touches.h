#pragma once

#include <cstddef>
#include <cstdint>

#include "clock.h"

/// Finds a thread of the program that touches page-locked memory which pending work reads or
/// writes. Work is pending until the host has waited for it, also when it has run already: whether
/// a touch is found does not depend on the time. Only with FAKE_CUDA_RACES=1; without it all
/// functions do nothing.
///
/// While work is pending, its pages are closed to the host: PROT_READ if the work only reads, else
/// PROT_NONE. The handler of SIGSEGV prints a race if the byte belongs to the work, and lets the
/// access go on. (Memory protection keys would spare the device's thread its own faults, but few
/// machines that test have them.) A system call of the program on such a page gets EFAULT; so a
/// page that a large range only begins or ends in stays open, since it may hold other things.
namespace fake_cuda {

/// Call when a piece of work that touches host memory is enqueued, or when a graph with such a
/// piece is launched. Memory that is not page-locked or registered is passed over. `what` and
/// `lane` (of races.h) name the piece in messages; `what` lives as long as the process. `number`:
/// of the piece in its lane. Returns 0
/// if there is nothing to end. Threads: any.
uint64_t begin_pending(const void* memory, size_t bytes, bool writes, const char* what,
                       uint32_t lane, uint64_t number);
/// Watches for touches of closed memory, also before there is pending work. No-op the second time.
void catch_touches();
/// Call when the piece is done, or will never run. No-op for 0.
void end_pending(uint64_t pending);
/// Call when the host has waited: what is done and in its clock is no longer pending.
void host_learns(const Clock& host);
/// The memory is given back: memory.cpp calls it itself.
void forget_pending(const void* memory, size_t bytes);

/// While it lives, this thread does work of the device: it may touch all memory. Put one around
/// each piece of work, whichever thread executes it, callbacks of the program included.
class DeviceScope {
 public:
  DeviceScope();
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
};

}  // namespace fake_cuda
