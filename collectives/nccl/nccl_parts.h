#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/device/lane.h>
#include <lockstep/collectives/impl/nccl_api.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace lockstep::detail {

/// What an NCCL transport is made of.
struct NcclParts {
  std::shared_ptr<NcclApi> api;
  std::shared_ptr<DeviceLane> lane;
  /// The same ranks on the host, for nobody else: carries the id, the ranks' calls for comparison,
  /// host tensors and barriers.
  Communicator host;
  /// What tells this device from all others of all nodes, such as its UUID.
  std::string device_id;
  /// The call deadline, and whether ranks compare what they call.
  CommunicatorOptions options;
  std::chrono::milliseconds abort_deadline = std::chrono::seconds(10);
  /// How often a thread looks for failed and late collectives.
  std::chrono::milliseconds watch_interval = std::chrono::milliseconds(100);
  /// One rank of so many makes an NCCL id, where NCCL takes several.
  int ranks_per_id = 128;
  /// Called once, from any thread, when this transport or one split from it fails.
  std::function<void()> on_failure = [] {};
};

}  // namespace lockstep::detail
