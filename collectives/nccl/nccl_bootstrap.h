#pragma once

#include <lockstep/collectives/nccl/nccl_comm.h>
#include <lockstep/collectives/nccl/nccl_transport.h>

#include <memory>

namespace lockstep::detail {

/// Makes the NCCL communicator of all ranks of parts.host: the ranks compare versions and devices,
/// some of them make unique ids, all ranks initialise with these. Collective. Throws Error
/// (environment) on every rank for nccl_refusal().
std::shared_ptr<NcclComm> bootstrap_nccl(const NcclParts& parts);

}  // namespace lockstep::detail
