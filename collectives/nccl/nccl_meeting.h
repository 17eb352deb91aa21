#pragma once

#include <lockstep/collectives/nccl/nccl_comm.h>
#include <lockstep/collectives/nccl/nccl_transport.h>

#include <memory>

namespace lockstep {

/// The communicator of all ranks of parts.host: they compare versions and devices, rank 0 makes
/// the id, all join. Collective. Throws Error (environment) on every rank for nccl_refusal().
std::shared_ptr<NcclComm> meet(const NcclParts& parts);

}  // namespace lockstep
