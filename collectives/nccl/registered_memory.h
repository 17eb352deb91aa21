#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/device/lane.h>
#include <lockstep/collectives/nccl/nccl_comm.h>

#include <memory>

namespace lockstep::detail {

/// Zeroed device memory allocated by NCCL and, if all ranks can, registered with `comm`. May
/// outlive the communicator. Collective over `host`. Throws Error (out_of_memory) on every rank if
/// one has no memory.
at::Tensor registered_zeros(const std::shared_ptr<NcclComm>& comm,
                            const std::shared_ptr<DeviceLane>& lane, Communicator& host,
                            int64_t numel, at::ScalarType dtype);

}  // namespace lockstep::detail
