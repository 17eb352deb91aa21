#include "collective.h"

#include <algorithm>
#include <cstring>

#include "../common/work.h"
#include "reduction.h"

namespace fake_cuda {

size_t Collective::element() const {
  return bytes_of(static_cast<ncclDataType_t>(signature_.type));
}

/// A reduce-scatter puts a part of each block into the slot.
size_t Collective::elements_of_part(const ncclComm& comm) const {
  const size_t most = kSlotBytes / element() / input_blocks(comm);
  return std::min<size_t>(most, signature_.count - done_);
}

size_t Collective::input_blocks(const ncclComm& comm) const {
  return signature_.kind == CallKind::reduce_scatter ? comm.place().ranks : 1;
}

size_t Collective::output_blocks(const ncclComm& comm) const {
  return signature_.kind == CallKind::all_gather ? comm.place().ranks : 1;
}

bool Collective::has_output(const ncclComm& comm) const {
  return signature_.kind != CallKind::reduce || comm.place().rank == signature_.root;
}

void Collective::begin(ncclComm& comm) {
  const bool has_input =
      signature_.kind != CallKind::broadcast || comm.place().rank == signature_.root;
  if (has_input) {
    read_bytes(input_, signature_.count * element() * input_blocks(comm));
  }
  if (has_output(comm)) {
    write_bytes(output_, signature_.count * element() * output_blocks(comm));
  }
  factor_ = reduction_.factor.value_or(1);
  if (reduction_.device_factor != nullptr) {
    read_bytes(reduction_.device_factor, element());
    factor_ = load_scalar(reduction_.device_factor, reduction_.factor_type);
  }
}

bool Collective::advance(ncclComm& comm) {
  Board& board = comm.board();
  const auto all_have = [&](std::atomic<uint64_t> RankEntry::*counter, uint64_t value) {
    for (int rank = 0; rank < comm.place().ranks; ++rank) {
      if ((board->ranks[rank].*counter).load(std::memory_order_acquire) < value) {
        return false;
      }
    }
    return true;
  };
  const auto look_for = [&](std::atomic<uint64_t> RankEntry::*counter, uint64_t value) {
    comm.look_at_peers([&](const RankEntry& other) { return (other.*counter).load() < value; });
  };
  for (moved_ = false;;) {
    const uint64_t now = comm.parts;
    const size_t count = elements_of_part(comm);
    if (!posted_) {
      // A rank may still read the last part.
      if (!all_have(&RankEntry::read, now)) {
        look_for(&RankEntry::read, now);
        return false;
      }
      post(comm, count);
      posted_ = moved_ = true;
    }
    if (!all_have(&RankEntry::posted, now + 1)) {
      look_for(&RankEntry::posted, now + 1);
      return false;
    }
    if (!calls_are_equal(comm)) {
      return false;
    }
    take(comm, count);
    posted_ = false;
    moved_ = true;
    done_ += count;
    comm.parts = now + 1;
    comm.own_entry().read.store(now + 1, std::memory_order_release);
    if (done_ == signature_.count) {
      done_ = 0;
      return true;
    }
  }
}

void Collective::post(ncclComm& comm, size_t count) {
  char* slot = comm.board()->slots[comm.place().rank];
  if (signature_.kind != CallKind::broadcast || comm.place().rank == signature_.root) {
    for (size_t block = 0; block < input_blocks(comm); ++block) {
      copy_in(slot + block * count * element(), block * signature_.count + done_, count);
    }
  }
  RankEntry& entry = comm.own_entry();
  entry.signature = signature_;
  entry.posted.store(comm.parts + 1, std::memory_order_release);
}

void Collective::copy_in(char* slot, size_t offset, size_t count) {
  std::memcpy(slot, input_ + offset * element(), count * element());
  if (reduction_.factor.has_value() || reduction_.device_factor != nullptr) {
    multiply_all(slot, count, static_cast<ncclDataType_t>(signature_.type), factor_);
  }
}

/// All ranks see the same calls here, so all find it if one differs.
bool Collective::calls_are_equal(ncclComm& comm) {
  const int ranks = comm.place().ranks;
  bool equal = true;
  for (int rank = 0; rank < ranks; ++rank) {
    equal = equal && comm.board()->ranks[rank].signature == signature_;
  }
  if (!equal) {
    std::string calls;
    for (int rank = 0; rank < ranks; ++rank) {
      calls += (rank == 0 ? ": rank " : "; rank ") + std::to_string(rank) + " calls " +
               comm.board()->ranks[rank].signature.text();
    }
    comm.fail(ncclInvalidUsage, "the ranks do not make the same call" + calls);
  }
  return equal;
}

void Collective::take(ncclComm& comm, size_t count) {
  Board& board = comm.board();
  const size_t bytes = count * element();
  switch (signature_.kind) {
    case CallKind::all_reduce:
    case CallKind::reduce:
      if (has_output(comm)) {
        sum(comm, 0, count);
      }
      return;
    case CallKind::reduce_scatter:
      sum(comm, comm.place().rank, count);
      return;
    case CallKind::all_gather:
      for (int rank = 0; rank < comm.place().ranks; ++rank) {
        std::memcpy(output_ + (rank * signature_.count + done_) * element(), board->slots[rank],
                    bytes);
      }
      return;
    case CallKind::broadcast:
      std::memcpy(output_ + done_ * element(), board->slots[signature_.root], bytes);
      return;
  }
}

/// Of one block of all slots. The sum lies in the output, so each step rounds.
void Collective::sum(ncclComm& comm, size_t block, size_t count) {
  Board& board = comm.board();
  const auto type = static_cast<ncclDataType_t>(signature_.type);
  char* to = output_ + done_ * element();
  const size_t begin = block * count * element();
  std::memcpy(to, board->slots[0] + begin, count * element());
  for (int rank = 1; rank < comm.place().ranks; ++rank) {
    combine(to, board->slots[rank] + begin, count, type, reduction_.op);
  }
  if (reduction_.divisor != 0) {
    divide_all(to, count, type, reduction_.divisor);
  }
}

void Collective::poison(ncclComm& comm) {
  if (has_output(comm)) {
    std::memset(output_, 0xff, signature_.count * element() * output_blocks(comm));
  }
}

}  // namespace fake_cuda
