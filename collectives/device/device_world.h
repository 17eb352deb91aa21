#pragma once

#include <lockstep/collectives/communicator.h>

#include <functional>
#include <string>
#include <vector>

namespace lockstep {

/// What carries device tensors between the ranks.
enum class DeviceTransport { automatic, nccl, staged };

/// What a rank brings to that choice.
struct DeviceRank {
  int nccl_version = 0;        // 0: this rank has no NCCL
  bool may_share_gpu = false;  // NCCL_MULTI_RANK_GPU_ENABLE=1
  std::string device_id;
  std::string without_nccl;  // why it has none
};

/// The one transport for all of these ranks, and why it is not NCCL, empty if it is. Automatic:
/// NCCL where all ranks can use it together. Throws Error (environment) when NCCL was asked for and
/// cannot be used.
struct DeviceChoice {
  DeviceTransport transport;
  std::string reason;
};
DeviceChoice choose_transport(DeviceTransport asked, const std::vector<DeviceRank>& ranks);

/// The ranks of `host`, for tensors of `device`; host tensors work too. Collective. `host` is the
/// new communicator's own afterwards. `on_failure` is called once if it fails, from any thread.
/// Errors: as choose_transport(), on every rank.
Communicator make_device_world(Communicator host, c10::Device device, const std::string& device_id,
                               DeviceTransport asked, const CommunicatorOptions& options,
                               std::function<void()> on_failure);

}  // namespace lockstep
