#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/collectives/impl/side_streams.h>

namespace lockstep::detail {

c10::Stream SideStreams::of(c10::Device device) {
  const std::lock_guard<std::mutex> locked(mutex_);
  const auto found = streams_.find(device.index());
  if (found != streams_.end()) {
    return found->second;
  }
  const c10::impl::VirtualGuardImpl devices(device.type());
  return streams_.emplace(device.index(), devices.getStreamFromGlobalPool(device)).first->second;
}

}  // namespace lockstep::detail
