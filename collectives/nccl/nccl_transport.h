#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/core/transport.h>
#include <lockstep/collectives/device/lane.h>
#include <lockstep/collectives/nccl/nccl_api.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

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

/// Device tensors over NCCL, host tensors over `parts.host`.
///
/// Order: NCCL runs on the lane, behind what the caller's stream held when the collective was
/// issued. Work::wait() makes the caller's current stream wait, not the host; with
/// CollectiveCheck::on the host waits until every rank has made the same call. Memory of a tensor
/// in flight is kept.
/// Averages: each element times a power of two before the sum (PreMulSum), the rest of the factor
/// after it, so no fp16 sum overflows that the average would not; NCCL's own average is not used.
/// Graph capture (graph_capture.h): during capture the ranks exchange their states over the host
/// (CaptureAgreement), so neither a rank nor its NCCL waits for a rank that failed. The first
/// collective forks the lane off the captured stream, and the lane joins the stream at the end.
/// During capture no event is queried and nothing is timed. launch() puts a mark behind the graph,
/// as behind a collective, which orders the graph with the collectives before and after. Failure:
/// an error of NCCL, a late peer or differing calls abort the communicator, on a thread of its own
/// with a deadline of its own, and every later call throws the same error. Since NCCL 2.26
/// ncclCommAbort returns only after every graph that captured its collectives is destroyed. So
/// after a capture the error is thrown as soon as the abort has started, the owner can destroy the
/// graphs, and the destructor waits for the abort to return.
/// Ranks: collective; with one rank all is done at once and NCCL is not asked.
/// Errors: Error (environment) on every rank when versions differ, or when two ranks share a GPU
/// and NCCL cannot (before 2.30.3, or without NCCL_MULTI_RANK_GPU_ENABLE=1).
std::shared_ptr<Transport> make_nccl_transport(NcclParts parts);

/// What a rank tells the others before they make a communicator.
struct NcclPeer {
  int version;
  bool may_share_gpu;  // NCCL_MULTI_RANK_GPU_ENABLE=1
  std::string device_id;
};

/// Why these ranks, in rank order, cannot use NCCL together; empty where they can.
std::string nccl_refusal(const std::vector<NcclPeer>& peers);

}  // namespace lockstep::detail
