#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/runtime/process/impl/identity.h>
#include <lockstep/runtime/process/own/device_choice.h>

#include <algorithm>
#include <map>
#include <sstream>

namespace lockstep::detail {
namespace {

/// What one rank knows about GPUs.
struct Sight {
  int visible = 0;
  int present = 0;
  bool unwanted = false;
  std::string why_none;
};

std::vector<Sight> sights_of_all(const Communicator& control, const DeviceDriver& driver) {
  Sight own;
  own.visible = std::max(0, driver.visible());
  if (own.visible == 0) {
    own = {0, driver.present(), driver.unwanted(), driver.why_none()};
  }
  const std::string mine =
      c10::str(own.visible, " ", own.present, " ", own.unwanted, " ", own.why_none);
  std::vector<Sight> sights;
  for (const std::string& text : control.all_gather_bytes(mine)) {
    std::istringstream words(text);
    Sight sight;
    words >> sight.visible >> sight.present >> sight.unwanted;
    std::getline(words >> std::ws, sight.why_none);
    sights.push_back(std::move(sight));
  }
  return sights;
}

std::string gpus(int count) {
  return c10::str(count, count == 1 ? " GPU is" : " GPUs are");
}

/// All ranks compute on CUDA devices, or none; none only where that can be no mistake.
BoundDevice choose_kind(const std::vector<Sight>& sights) {
  std::vector<std::string> reasons;
  int visible = 0;
  int present = 0;
  bool all = true;
  bool unwanted = false;
  for (const Sight& sight : sights) {
    visible = std::max(visible, sight.visible);
    present = std::max(present, sight.present);
    all = all && sight.visible > 0;
    unwanted = unwanted || sight.unwanted;
    reasons.push_back(sight.visible > 0 ? ""
                                        : c10::str("sees no CUDA device (", sight.why_none, ")"));
  }
  if (all) {
    return {c10::Device(c10::kCUDA), "",
            c10::str(gpus(visible),
                     " visible; this run is on CUDA devices because every rank sees "
                     "one; LOCKSTEP_DEVICE=cpu chooses CPUs"),
            true};
  }
  const std::string seen = visible > 0   ? gpus(visible) + " visible to some ranks; "
                           : present > 0 ? gpus(present) + " in the machine; "
                                         : "";
  if (!seen.empty() && !unwanted) {
    std::vector<int> blind;
    for (size_t rank = 0; rank < sights.size(); ++rank) {
      if (sights[rank].visible == 0) {
        blind.push_back(static_cast<int>(rank));
      }
    }
    throw Error(seen + "this run cannot use them because " + quoted(reasons) +
                    "; LOCKSTEP_DEVICE=cpu chooses CPUs",
                ExitCode::environment, blind);
  }
  return {c10::Device(c10::kCPU), "", seen + "this run is on CPUs because " + quoted(reasons),
          visible + present > 0};
}

}  // namespace

int choose_device(int local_rank, int local_size, int visible, const std::string& why_none) {
  LOCKSTEP_CHECK_CODE(visible > 0, ExitCode::environment, "local rank ", local_rank,
                      " sees no CUDA device: ", why_none);
  if (visible == 1) {
    return 0;
  }
  LOCKSTEP_CHECK_CODE(
      local_rank < visible, ExitCode::environment, "local rank ", local_rank, " of ", local_size,
      " on this node sees ", visible, " CUDA devices, so there is none for it: start ", visible,
      " ranks on a node, or let each rank see only its own device; LOCKSTEP_DEVICE=cpu "
      "chooses CPUs");
  return local_rank;
}

std::string shared_device(const std::vector<std::string>& identities) {
  std::map<std::string, size_t> owner;
  for (size_t k = 0; k < identities.size(); ++k) {
    const auto place = owner.emplace(identities[k], k);
    if (!place.second) {
      return c10::str(
          "ranks ", place.first->second, " and ", k, " have the same device ",
          identities[k].substr(0, identities[k].find('/')),
          ": they see only that one (look at CUDA_VISIBLE_DEVICES of each rank), or "
          "more ranks were started than there are devices; to share it on purpose, "
          "RuntimeOptions().share_device(true) or LOCKSTEP_SHARE_DEVICE=1; LOCKSTEP_DEVICE=cpu "
          "chooses CPUs");
    }
  }
  return {};
}

DeviceDriver cuda_driver() {
  return {visible_devices,
          device_identity,
          [](c10::Device device) { c10::impl::VirtualGuardImpl(device.type()).setDevice(device); },
          [] { return why_no_device(driver_versions()); },
          [] { return gpus_present(); },
          [] { return wants_no_device(driver_versions()); },
          [](int index) { return detail::why_no_code(index); }};
}

BoundDevice bind_device(DeviceKind kind, bool may_share, Communicator& control,
                        const DeviceDriver& driver) {
  const Agreement agreement(control);
  BoundDevice bound{c10::Device(kind == DeviceKind::cpu ? c10::kCPU : c10::kCUDA), "",
                    "as RuntimeOptions::device or LOCKSTEP_DEVICE asks"};
  if (kind == DeviceKind::automatic) {
    bound = choose_kind(sights_of_all(control, driver));
  }
  if (bound.device.is_cpu()) {
    return bound;
  }
  agreement.attempt([&] {
    const int visible = driver.visible();
    const int index = choose_device(control.local_rank(), control.local_size(), visible,
                                    visible > 0 ? "" : driver.why_none());
    bound.device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
    const std::string why_no_code = driver.why_no_code(index);
    LOCKSTEP_CHECK_CODE(why_no_code.empty(), ExitCode::environment, "device ", bound.device,
                        " cannot run LibTorch: ", why_no_code);
    bound.identity = driver.identity(index);
  });
  const std::string shared = shared_device(control.all_gather_bytes(bound.identity));
  LOCKSTEP_CHECK_CODE(shared.empty() || may_share, ExitCode::environment, "rank ", control.rank(),
                      ": ", shared);
  driver.make_current(bound.device);
  return bound;
}

}  // namespace lockstep::detail
