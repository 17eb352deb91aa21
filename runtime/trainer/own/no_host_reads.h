#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep::detail {

/// While it lives, operators that bring values of the host to a device throw Error (usage): copies
/// between host and device, and operators that take a tensor of the host beside one of the device.
/// A captured graph would read them in the memory of its capture, or keep them, at each launch.
/// A graph keeps numbers too, but says so: a tensor without dimensions that is made meanwhile, of
/// numbers alone, is taken for a number.
/// Threads: acts on the calling thread and on the backward passes that it starts. Ranks: local.
class [[nodiscard]] NoHostReads {
 public:
  NoHostReads();
  ~NoHostReads();
  NoHostReads(const NoHostReads&) = delete;
  NoHostReads& operator=(const NoHostReads&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace lockstep::detail
