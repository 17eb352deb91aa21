#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/core/Stream.h>

#include <map>
#include <mutex>

namespace lockstep::detail {

/// One stream of each device, for one purpose beside the stream that computes. It comes from
/// LibTorch's pool at its first use: the pool has only 32 to give away, then one comes that has
/// another use. Threads: any.
class SideStreams {
 public:
  c10::Stream of(c10::Device device);

 private:
  std::mutex mutex_;
  std::map<c10::DeviceIndex, c10::Stream> streams_;
};

}  // namespace lockstep::detail
