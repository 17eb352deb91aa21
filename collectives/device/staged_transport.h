#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/device/lane.h>
#include <lockstep/collectives/impl/transport.h>

#include <chrono>
#include <memory>

namespace lockstep::detail {

struct StagedParts {
  /// Copies to the host (down) and to the device (up): two streams, so both directions run at once.
  std::shared_ptr<DeviceLane> down;
  std::shared_ptr<DeviceLane> up;
  /// The same ranks on the host; for this transport only.
  Communicator host;
  /// A copy that takes longer throws CommunicationError.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// All-reduces are cut into chunks of this size, so copies and sums of different chunks overlap.
  int64_t chunk_bytes = int64_t{4} << 20;
};

/// Makes the staged transport: device tensors are copied to page-locked host memory and reduced by
/// the host's transport, so sums have the host's bits. For ranks that share a GPU, for machines
/// without NCCL, and as the reference for NCCL. `parts.host` carries host tensors.
///
/// Progress: inside test(), wait() and progress(). Work::wait() returns once the host has the
/// result and the copy to the device is queued; the caller's current stream waits for that copy.
/// Ranks: collective. Errors: those of the host transport; every later call throws the same error.
/// If a rank gets no page-locked memory, every rank throws the same Error (out_of_memory) before
/// any copy and can go on; for an all_reduce, allocate() of its tensor throws it.
std::shared_ptr<Transport> make_staged_transport(StagedParts parts);

}  // namespace lockstep::detail
