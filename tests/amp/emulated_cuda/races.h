#pragma once

namespace lockstep::emulated_cuda {

/// What the emulation tells ThreadSanitizer, so that two accesses that no barrier, warp barrier or
/// launch orders are a race that it reports, in whatever order they ran: races_reported.cpp. In a
/// program without the sanitizer none of it does anything: races_ignored.cpp.
bool races_are_reported();

/// What the sanitizer holds for a thread: of the running one, and a new one.
void* this_thread();
void* new_thread();
/// Before the stacks are switched.
void become(void* thread);

/// What this thread has done is seen by those that observe `channel` afterwards.
void publish(void* channel);
void observe(void* channel);

}  // namespace lockstep::emulated_cuda
