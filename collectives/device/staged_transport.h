#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/device/lane.h>
#include <lockstep/collectives/impl/transport.h>

#include <chrono>
#include <memory>

namespace lockstep::detail {

struct StagedParts {
  /// Device to host, and host to device: two streams, so that both directions run at once.
  std::shared_ptr<DeviceLane> down;
  std::shared_ptr<DeviceLane> up;
  /// The same ranks on the host, for nobody else.
  Communicator host;
  /// How long the device may take for a copy before CommunicationError.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// All-reduces travel in chunks of this size: while one is summed on the host, the next ones
  /// come down and those before it go up.
  int64_t chunk_bytes = int64_t{4} << 20;
};

/// Device tensors through page-locked host memory and the host's transport: for ranks that share a
/// GPU, for machines without NCCL, and as the reference that NCCL is compared with: sums have the
/// host's bits. Host tensors go over `parts.host` as they are.
///
/// Progress: inside test(), wait() and progress(). Work::wait() returns once the host has the sum
/// and its way up is queued: the caller's current stream then waits for the copy.
/// Ranks: collective. Errors: as the host transport's; after one every call throws the same. Where
/// a rank has no page-locked memory, every rank throws the same Error (out_of_memory) before
/// anything moves, and can go on; for an all_reduce that is found out when its tensor is allocated.
std::shared_ptr<Transport> make_staged_transport(StagedParts parts);

}  // namespace lockstep::detail
