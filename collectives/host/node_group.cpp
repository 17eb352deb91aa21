#include <lockstep/collectives/host/node_group.h>

#include <lockstep/collectives/impl/process_mark.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace lockstep::detail {

constexpr size_t NodeGroup::staging_offset() {
  return (sizeof(Block) + 4095) / 4096 * 4096;
}

size_t NodeGroup::block_bytes() {
  return staging_offset() + kSlots * (2 * kChunkBytes + kSmallBytes);
}

NodeGroup::NodeGroup(std::vector<std::shared_ptr<SharedMemory>> blocks, int rank, Peers peers)
    : blocks_(std::move(blocks)), rank_(rank), own_(&block(rank)), processes_(blocks_.size(), -1) {
  own().process = peers == Peers::processes ? getpid() : 0;
  if (sched_getaffinity(0, sizeof(cpu_set_t), &own().cores) != 0) {
    CPU_ZERO(&own().cores);
  }
  for (int slot = 0; slot < kSlots; ++slot) {
    for (int k = 0; k < size(); ++k) {
      contributions_[static_cast<size_t>(slot)].push_back(contribution(k, slot));
    }
    for (int k = 0; k < 2 * size(); ++k) {
      small_contributions_[static_cast<size_t>(slot)].push_back(small_slot(k % size(), slot));
    }
  }
}

NodeGroup::~NodeGroup() {
  for (int process : processes_) {
    if (process >= 0) {
      close(process);
    }
  }
}

void NodeGroup::watch_peers() {
  for (int k = 0; k < size(); ++k) {
    if (k != rank_ && block(k).process != 0) {
      processes_[static_cast<size_t>(k)] =
          static_cast<int>(syscall(SYS_pidfd_open, block(k).process, 0));
    }
  }
}

void NodeGroup::announce(const CollectiveCall& call) {
  own().calls[call.sequence % kCallsKept].call = call;
  own().announced.store(call.sequence, std::memory_order_relaxed);
  own().digests[call.sequence % kDigestsKept].store(call.digest(), std::memory_order_relaxed);
}

bool NodeGroup::all_announced(const CollectiveCall& call) const {
  const uint64_t digest = call.digest();
  for (int k = 0; k < size(); ++k) {
    // If a rank is ahead, the digest may be of a newer call: then compare the calls.
    if (block(k).digests[call.sequence % kDigestsKept].load(std::memory_order_relaxed) != digest &&
        !(call_of(k, call.sequence) == call)) {
      return false;
    }
  }
  return true;
}

const CollectiveCall& NodeGroup::call_of(int rank, uint64_t sequence) const {
  return block(rank).calls[sequence % kCallsKept].call;
}

uint64_t NodeGroup::last_announced(int rank) const {
  return block(rank).announced.load(std::memory_order_acquire);
}

bool NodeGroup::all_posted(uint64_t tick) const {
  for (int k = 0; k < size(); ++k) {
    if (!has_posted(k, tick)) {
      return false;
    }
  }
  return true;
}

bool NodeGroup::all_reduced(uint64_t tick) const {
  for (int k = 0; k < size(); ++k) {
    if (!has_reduced(k, tick)) {
      return false;
    }
  }
  return true;
}

char* NodeGroup::contribution(int rank, int slot) const {
  return blocks_[static_cast<size_t>(rank)]->data() + staging_offset() +
         static_cast<size_t>(slot) * kChunkBytes;
}

char* NodeGroup::arrival_slot(int rank, int slot) const {
  return contribution(rank, slot) + kSlots * kChunkBytes;
}

char* NodeGroup::small_slot(int rank, int slot) const {
  return contribution(rank, 2 * kSlots) + static_cast<size_t>(slot) * kSmallBytes;
}

bool NodeGroup::is_gone(int rank) const {
  if (block(rank).left.load(std::memory_order_acquire) != 0) {
    return true;
  }
  const int process = processes_[static_cast<size_t>(rank)];
  if (process < 0) {
    return false;
  }
  pollfd ended = {process, POLLIN, 0};  // readable once the process is dead, reaped or not
  return poll(&ended, 1, /*timeout=*/0) > 0;
}

void NodeGroup::leave_because(const std::string& cause, int code) {
  std::memcpy(own().cause.data(), cause.data(), std::min(cause.size(), kCauseBytes - 1));
  own().code = code;
  leave();
}

std::string NodeGroup::cause_of(int rank) const {
  const Block& theirs = block(rank);
  return theirs.left.load(std::memory_order_acquire) != 0 ? theirs.cause.data() : "";
}

int NodeGroup::code_of(int rank) const {
  const Block& theirs = block(rank);
  return theirs.left.load(std::memory_order_acquire) != 0 ? theirs.code : 0;
}

void NodeGroup::leave_step(uint64_t round, uint64_t last, const std::string& cause) {
  if (own().left_round.load(std::memory_order_relaxed) == round) {
    return;  // the first cause is the one
  }
  own().last_call = last;
  own().step_cause = {};
  std::memcpy(own().step_cause.data(), cause.data(), std::min(cause.size(), kCauseBytes - 1));
  own().left_round.store(round, std::memory_order_release);
}

std::optional<std::string> NodeGroup::left_step(int rank, uint64_t round, uint64_t sequence) const {
  const Block& theirs = block(rank);
  if (theirs.left_round.load(std::memory_order_acquire) != round || theirs.last_call >= sequence) {
    return std::nullopt;
  }
  return theirs.step_cause.data();
}

std::shared_ptr<ActivitySlot> NodeGroup::own_activity() const {
  return {blocks_[static_cast<size_t>(rank_)], &own().activity};
}

bool NodeGroup::is_stopped(int rank) const {
  return detail::is_stopped(block(rank).process);  // no process has the number 0
}

bool NodeGroup::crowded() const {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (int k = 0; k < size(); ++k) {
    CPU_OR(&cores, &cores, &block(k).cores);
  }
  return CPU_COUNT(&cores) < size();
}

}  // namespace lockstep::detail
