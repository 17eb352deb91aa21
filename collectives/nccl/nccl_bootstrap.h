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
};

/// Why these ranks, in rank order, cannot use NCCL together; empty: they can.
std::string nccl_refusal(const std::vector<NcclPeer>& peers);

/// Makes the NCCL communicator of all ranks of parts.host: the ranks compare versions and devices,
/// some of them make unique ids, all ranks initialise with these. Collective. Throws Error
/// (environment): on every rank for nccl_refusal(), else on those where NCCL fails.
std::shared_ptr<NcclComm> bootstrap_nccl(const NcclParts& parts);

}  // namespace lockstep::detail
