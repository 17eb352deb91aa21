#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/device/lane.h>
#include <lockstep/collectives/nccl/nccl_comm.h>

#include <memory>

namespace lockstep::detail {

/// Zeroed device memory that NCCL has allocated and, where every rank could, registered with
/// `comm`. It may outlive the communicator. Collective over `host`. Throws Error (out_of_memory)
/// on every rank when one has no memory.
at::Tensor registered_zeros(const std::shared_ptr<NcclComm>& comm,
                            const std::shared_ptr<DeviceLane>& lane, Communicator& host,
                            int64_t numel, at::ScalarType dtype);

}  // namespace lockstep::detail
