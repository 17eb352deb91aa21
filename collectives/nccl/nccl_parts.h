#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/device/lane.h>
#include <lockstep/collectives/impl/nccl_api.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace lockstep::detail {

/// The parts of an NCCL transport.
struct NcclParts {
  std::shared_ptr<NcclApi> api;
  std::shared_ptr<DeviceLane> lane;
  /// The same ranks on the host, for this transport only: for ids, comparison of calls, host
  /// tensors and barriers.
  Communicator host;
  /// Unique among the devices of all nodes, such as the UUID.
  std::string device_id;
  /// The call deadline, and whether ranks compare what they call.
  CommunicatorOptions options;
  std::chrono::milliseconds abort_deadline = std::chrono::seconds(10);
  /// How often a thread looks for failed and late collectives.
  std::chrono::milliseconds watch_interval = std::chrono::milliseconds(100);
  /// If NCCL takes several ids: one of this many ranks makes one.
  int ranks_per_id = 128;
  /// Called once, from any thread, when this transport or one split from it fails.
  std::function<void()> on_failure = [] {};
};

}  // namespace lockstep::detail
