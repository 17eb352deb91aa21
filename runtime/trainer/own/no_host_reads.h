#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep::detail {

/// While it lives, operators that bring values of the host to a device throw Error (usage): copies
/// between host and device, and operators that take a tensor of the host beside one of the device.
/// At each launch a captured graph would use those values, or the memory where they were at the
/// capture. Numbers are allowed, although a graph keeps them too: a 0-dimensional tensor that is
/// made from numbers alone while this object lives counts as a number.
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
