#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/device/lane.h>
#include <lockstep/collectives/nccl/nccl_api.h>
#include <lockstep/collectives/transport.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

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
  /// Called once, from any thread, when this transport or one split from it fails.
  std::function<void()> on_failure = [] {};
};

/// Device tensors over NCCL, host tensors over `parts.host`.
///
/// Order: NCCL runs on the lane, behind what the caller's stream held when the collective was
/// issued. Work::wait() makes the caller's current stream wait, not the host; with
/// CollectiveCheck::on the host waits until every rank has made the same call. Memory of a tensor
/// in flight is kept.
/// Averages: each element times a power of two before the sum (PreMulSum), the rest of the factor
/// after it, so no fp16 sum overflows that the average would not; NCCL's own average is not used.
/// Records (Communicator::record): the ranks watch each other over the host (JointRecord), so one
/// that fails is waited for neither by the others nor by their NCCL. The lane is forked off the
/// stream that is recorded by the first collective and joined at its end. Of what is recorded no
/// event is asked and nothing is timed; replay() puts a mark behind the record, as behind a
/// collective, and orders it with the collectives before and after.
/// Failure: an error of NCCL, a late peer or differing calls abort the communicator, on a thread of
/// its own with a deadline of its own, and every later call throws the same. From 2.26 on NCCL
/// comes back from an abort only once the records with its collectives are destroyed, which their
/// owner does when he has heard of the failure: then a failure is thrown as soon as the abort has
/// begun, which ends what is under way, and the destructor waits for its return.
/// Ranks: collective; with one rank all is done at once and NCCL is not asked.
/// Errors: Error (environment) on every rank when versions differ, or when two ranks share a GPU
/// and NCCL cannot (before 2.30.3, or without NCCL_MULTI_RANK_GPU_ENABLE=1).
std::shared_ptr<Transport> make_nccl_transport(NcclParts parts);

/// What a rank tells the others before they meet.
struct NcclPeer {
  int version;
  bool may_share_gpu;  // NCCL_MULTI_RANK_GPU_ENABLE=1
  std::string device_id;
};

/// Why these ranks, in rank order, cannot use NCCL together; empty where they can.
std::string nccl_refusal(const std::vector<NcclPeer>& peers);

}  // namespace lockstep
