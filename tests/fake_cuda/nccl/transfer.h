#pragma once

#include <nccl.h>

#include <cstdint>

#include "communicator.h"

namespace fake_cuda {

/// One ncclSend or ncclRecv while it runs. A value, like Collective.
class Transfer {
 public:
  Transfer(bool sends, int peer, ncclDataType_t type, uint64_t count, void* memory)
      : sends_(sends),
        peer_(peer),
        type_(type),
        count_(count),
        memory_(static_cast<char*>(memory)) {}

  bool sends() const { return sends_; }
  int peer() const { return peer_; }
  void begin();
  bool advance(ncclComm& comm);
  void poison();
  bool moved() const { return moved_; }

 private:
  bool send_part(ncclComm& comm, Mailbox& mail, size_t bytes);
  bool receive_part(ncclComm& comm, Mailbox& mail, size_t bytes);

  bool sends_;
  int peer_;
  ncclDataType_t type_;
  uint64_t count_;
  char* memory_;
  uint64_t done_ = 0;  // bytes
  bool moved_ = false;
};

}  // namespace fake_cuda
