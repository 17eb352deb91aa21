#include "transfer.h"

#include <algorithm>
#include <cstring>

#include "../common/work.h"
#include "reduction.h"

namespace fake_cuda {

void Transfer::begin() {
  const size_t bytes = count_ * bytes_of(type_);
  if (sends_) {
    read_bytes(memory_, bytes);
  } else {
    write_bytes(memory_, bytes);
  }
}

bool Transfer::advance(ncclComm& comm) {
  const int own = comm.place().rank;
  Mailbox& mail = sends_ ? comm.board()->mail[own][peer_] : comm.board()->mail[peer_][own];
  const uint64_t all = count_ * bytes_of(type_);
  for (moved_ = false; done_ < all; moved_ = true) {
    const size_t bytes = std::min<uint64_t>(kMailBytes, all - done_);
    if (!(sends_ ? send_part(comm, mail, bytes) : receive_part(comm, mail, bytes))) {
      const RankEntry* peer = &comm.board()->ranks[peer_];
      comm.look_at_peers([peer](const RankEntry& other) { return &other == peer; });
      return false;
    }
    done_ += bytes;
  }
  done_ = 0;
  return true;
}

bool Transfer::send_part(ncclComm&, Mailbox& mail, size_t bytes) {
  const uint64_t sent = mail.sent.load();
  if (mail.received.load(std::memory_order_acquire) != sent) {
    return false;
  }
  mail.count = count_;
  mail.type = type_;
  std::memcpy(mail.data, memory_ + done_, bytes);
  mail.sent.store(sent + 1, std::memory_order_release);
  return true;
}

bool Transfer::receive_part(ncclComm& comm, Mailbox& mail, size_t bytes) {
  const uint64_t received = mail.received.load();
  if (mail.sent.load(std::memory_order_acquire) == received) {
    return false;
  }
  if (mail.count != count_ || mail.type != type_) {
    comm.fail(ncclInvalidUsage, "rank " + std::to_string(peer_) + " sends " +
                                    std::to_string(mail.count) + " " +
                                    name_of(static_cast<ncclDataType_t>(mail.type)) +
                                    ", but rank " + std::to_string(comm.place().rank) +
                                    " receives " + std::to_string(count_) + " " + name_of(type_));
    return false;
  }
  std::memcpy(memory_ + done_, mail.data, bytes);
  mail.received.store(received + 1, std::memory_order_release);
  return true;
}

void Transfer::poison() {
  if (!sends_) {
    std::memset(memory_, 0xff, count_ * bytes_of(type_));
  }
}

}  // namespace fake_cuda
