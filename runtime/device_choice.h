#pragma once

#include <c10/core/Device.h>
#include <lockstep/collectives/communicator.h>

#include <functional>
#include <string>
#include <vector>

namespace lockstep {

/// Which device a rank computes on.
enum class DeviceKind {
  cpu,
  cuda,
  automatic,  // cuda where every rank sees a device, else cpu
};

/// The CUDA device of this rank: the only one it sees (the launcher has chosen), or the one
/// numbered `local_rank`. `why_none`: where `visible` is 0. Throws Error (environment) that says
/// what is visible and what to start instead.
int choose_device(int local_rank, int local_size, int visible, const std::string& why_none);

/// Why these devices, of the ranks in order, are not one for each rank; empty where they are.
std::string shared_device(const std::vector<std::string>& identities);

/// A rank's device and what tells it from all others; empty for the CPU.
struct BoundDevice {
  c10::Device device;
  std::string identity;
};

/// What a rank can ask its machine.
struct DeviceDriver {
  std::function<int()> visible;
  std::function<std::string(int index)> identity;
  std::function<void(c10::Device)> make_current;
  std::function<std::string()> why_none;
};
/// This machine's.
DeviceDriver cuda_driver();

/// Chooses on every rank and makes the chosen device this thread's, before anything else touches
/// CUDA, so that no rank has a context on another rank's device. Collective. Throws Error
/// (environment) on every rank if one has no device, or if two ranks have the same one and
/// `may_share` is false.
BoundDevice bind_device(DeviceKind kind, bool may_share, Communicator& control,
                        const DeviceDriver& driver);

}  // namespace lockstep
