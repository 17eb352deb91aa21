#pragma once

#include <c10/core/Device.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/runtime/runtime.h>

#include <functional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// Returns the index of this rank's CUDA device: the only visible one (the launcher has chosen it),
/// else the one with number `local_rank`. `visible`: number of CUDA devices that this rank sees.
/// `why_none`: the reason if `visible` is 0. Throws Error (exit code environment) that says what is
/// visible and what to start instead.
int choose_device(int local_rank, int local_size, int visible, const std::string& why_none);

/// Explains which ranks share a device. `identities`: one per rank, in rank order. Empty if each
/// rank has a different device.
std::string shared_device(const std::vector<std::string>& identities);

/// A rank's device.
struct BoundDevice {
  c10::Device device;
  std::string identity;  // unique to the device; empty for the CPU
  /// Why the run is on this kind of device, one line: "8 GPUs are visible; this run is on CPUs
  /// because rank 3 sees no CUDA device: ...". The same on every rank.
  std::string reason;
  /// True if `automatic` made the choice and there is a GPU in the machine of any rank: then the
  /// Runtime prints `reason`.
  bool notable = false;
};

/// The queries that choose_device() and bind_device() make to the machine. Tests substitute them.
struct DeviceDriver {
  std::function<int()> visible;
  std::function<std::string(int index)> identity;
  std::function<void(c10::Device)> make_current;
  std::function<std::string()> why_none;
  /// GPUs in this machine, even if LibTorch or the driver cannot use them.
  std::function<int()> present;
  /// Whether this rank sees no device because none is wanted: wants_no_device().
  std::function<bool()> unwanted = [] { return false; };
  /// Why a visible device cannot run LibTorch's operators; empty: it can.
  std::function<std::string(int index)> why_no_code = [](int) { return std::string(); };
};
/// The CUDA driver of this machine.
DeviceDriver cuda_driver();

/// Chooses a device on every rank and makes it this thread's current device. Must run before
/// anything else touches CUDA, so that no rank creates a context on another rank's device.
/// Collective. `automatic` chooses CPUs where there is no GPU, or a rank wants none. Throws Error
/// (exit code environment) on every rank if GPUs are there and a rank sees none, if LibTorch has no
/// code for a rank's device, or if two ranks have the same device and `may_share` is false.
BoundDevice bind_device(DeviceKind kind, bool may_share, Communicator& control,
                        const DeviceDriver& driver);

}  // namespace lockstep::detail
