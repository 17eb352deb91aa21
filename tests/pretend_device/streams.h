#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <map>

namespace lockstep::pretend {

/// What is known to be done, of each stream: the number of its epoch. A stream's epoch ends where
/// an event is recorded on it.
using Clock = std::map<c10::StreamId, uint64_t>;

/// When something was put on a stream.
struct Moment {
  c10::StreamId stream = 0;
  uint64_t epoch = 0;
};

/// The current stream of the calling thread.
c10::StreamId current_stream();
/// Where the next operation on a stream stands, behind all that the host has waited for.
Moment next_moment(c10::StreamId stream);
/// Whether what comes next on `stream` starts after `earlier`.
bool ordered(const Moment& earlier, c10::StreamId stream);

/// The host waits until the stream is idle.
void wait_for(c10::StreamId stream);
/// How often it has done so, by whatever it did.
int64_t host_waits();

}  // namespace lockstep::pretend
