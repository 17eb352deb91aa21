#pragma once

#include <lockstep/collectives/nccl/nccl_comm.h>
#include <lockstep/collectives/nccl/nccl_parts.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::detail {

/// What ranks tell each other before they make a communicator.
struct NcclPeer {
  int version;
  bool may_share_gpu;  // NCCL_MULTI_RANK_GPU_ENABLE=1
  std::string device_id;
  bool blocks = false;  // NCCL_COMM_BLOCKING=1
};

/// With what the environment says.
NcclPeer own_peer(int version, const std::string& device_id);

/// Why these ranks, in rank order, cannot use NCCL together; empty: they can.
std::string nccl_refusal(const std::vector<NcclPeer>& peers);

/// Throws Error (environment) if a rank has NCCL_COMM_BLOCKING=1, which NCCL prefers to what
/// NcclComm asks for: its calls then wait for other ranks, and neither a deadline nor an abort ends
/// that.
void require_non_blocking(const std::vector<NcclPeer>& peers);

/// Makes the NCCL communicator of all ranks of parts.host: the ranks compare versions and devices,
/// some of them make unique ids, all ranks initialise with these. Collective. Throws Error
/// (environment): on every rank for nccl_refusal() and require_non_blocking(), else on those where
/// NCCL fails.
std::shared_ptr<NcclComm> bootstrap_nccl(const NcclParts& parts);

}  // namespace lockstep::detail
