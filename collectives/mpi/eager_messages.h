#pragma once

#include <lockstep/collectives/impl/mpi_comm.h>

#include <cstdint>
#include <vector>

namespace lockstep::detail {

/// Sends and receives memory of any length in messages that MPI sends without a handshake. Open MPI
/// does so over TCP below 64 KiB (btl_tcp_eager_limit). With the handshake of larger messages, two
/// directions at the same time get half the rate of a link of 1 Gb/s.
class EagerMessages {
 public:
  static constexpr int64_t kBytes = 60 << 10;  // of a message

  /// Messages go between ranks of `comm`.
  explicit EagerMessages(const MpiComm& comm) : comm_(comm) {}

  /// Both start a transfer and return. The memory must stay until are_complete() has returned true.
  void send(const void* from, int64_t bytes, int to, int tag);
  void receive(void* to, int64_t bytes, int from, int tag);
  /// True once everything has been sent and received.
  bool are_complete();

 private:
  const MpiComm& comm_;
  std::vector<MpiRequest> requests_;
};

}  // namespace lockstep::detail
