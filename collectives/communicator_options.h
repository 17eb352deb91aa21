#pragma once

#include <chrono>

namespace lockstep {

/// Whether ranks compare their calls (verb, dtype, size, operation, order) before any data moves.
enum class CollectiveCheck { off, on };

struct CommunicatorOptions {
  /// How long a collective waits for its peers before it throws CommunicationError.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// On: a mismatch throws Error on every rank, and the message shows the call of each rank. Costs
  /// one cache line per rank and collective; with NCCL an all-reduce of 16 bytes per collective.
  CollectiveCheck check = CollectiveCheck::on;
};

/// What carries device tensors between ranks.
enum class DeviceTransport { automatic, nccl, staged };

}  // namespace lockstep
