#pragma once

#include <functional>
#include <vector>

namespace lockstep::pretend {

/// Work of the device, in the order in which it came.
using Recording = std::vector<std::function<void()>>;

/// Does what an operation does to the device, and notes it while there is a recording.
void perform(std::function<void()> work);
/// The same for work that has been done.
void note(std::function<void()> work);
bool is_recording();

/// What `work` has the device do. Afterwards the device's memory and its generator are as before,
/// as if nothing had been done, and what was allocated meanwhile is used for nothing else. Throws
/// what `work` throws.
Recording record(const std::function<void()>& work);

/// Throws c10::Error while there is a recording: the host would wait for what has not begun.
void refuse_to_wait();

}  // namespace lockstep::pretend
