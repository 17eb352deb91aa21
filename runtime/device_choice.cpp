#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/collectives/core/agreement.h>
#include <lockstep/runtime/device_choice.h>
#include <lockstep/runtime/process/identity.h>

#include <map>

namespace lockstep {

int choose_device(int local_rank, int local_size, int visible, const std::string& why_none) {
  LOCKSTEP_CHECK_CODE(visible > 0, ExitCode::environment, "local rank ", local_rank,
                      " sees no CUDA device: ", why_none);
  if (visible == 1) {
    return 0;
  }
  LOCKSTEP_CHECK_CODE(local_rank < visible, ExitCode::environment, "local rank ", local_rank,
                      " of ", local_size, " on this node sees ", visible,
                      " CUDA devices, so there is none for it: start ", visible,
                      " ranks on a node, or let each rank see only its own device");
  return local_rank;
}

std::string shared_device(const std::vector<std::string>& identities) {
  std::map<std::string, size_t> owner;
  for (size_t k = 0; k < identities.size(); ++k) {
    const auto place = owner.emplace(identities[k], k);
    if (!place.second) {
      return c10::str("ranks ", place.first->second, " and ", k, " have the same device ",
                      identities[k],
                      ": they see only that one (look at CUDA_VISIBLE_DEVICES of each rank), or "
                      "more ranks were started than there are devices; to share it on purpose, "
                      "RuntimeOptions().share_device(true) or LOCKSTEP_SHARE_DEVICE=1");
    }
  }
  return {};
}

DeviceDriver cuda_driver() {
  return {detail::visible_devices, detail::device_identity,
          [](c10::Device device) { c10::impl::VirtualGuardImpl(device.type()).setDevice(device); },
          [] { return detail::why_no_device(detail::driver_versions()); }};
}

BoundDevice bind_device(DeviceKind kind, bool may_share, Communicator& control,
                        const DeviceDriver& driver) {
  const detail::Agreement agreement(control);
  if (kind == DeviceKind::automatic) {
    kind = agreement.any(driver.visible() <= 0) ? DeviceKind::cpu : DeviceKind::cuda;
  }
  if (kind == DeviceKind::cpu) {
    return {c10::Device(c10::kCPU), ""};
  }
  BoundDevice bound{c10::Device(c10::kCPU), ""};
  agreement.attempt([&] {
    const int visible = driver.visible();
    const int index = choose_device(control.local_rank(), control.local_size(), visible,
                                    visible > 0 ? "" : driver.why_none());
    bound.device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
    bound.identity = driver.identity(index);
  });
  const std::string shared = shared_device(control.all_gather_bytes(bound.identity));
  LOCKSTEP_CHECK_CODE(shared.empty() || may_share, ExitCode::environment, "rank ", control.rank(),
                      ": ", shared);
  driver.make_current(bound.device);
  return bound;
}

}  // namespace lockstep
