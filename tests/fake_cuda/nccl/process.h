#pragma once

#include <cstdint>

namespace fake_cuda {

/// A process of this machine. A number alone may come back as another process.
struct ProcessId {
  int32_t pid = 0;
  uint64_t started = 0;  // in ticks since the machine's start

  bool operator==(const ProcessId&) const = default;
};

ProcessId this_process();
/// False also for one that has ended and whose parent has not asked for its exit code.
bool is_alive(const ProcessId& process);

}  // namespace fake_cuda
