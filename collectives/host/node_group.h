#pragma once

#include <lockstep/collectives/host/shared_memory.h>
#include <lockstep/collectives/impl/activity.h>
#include <lockstep/collectives/impl/collective_call.h>

#include <sched.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// The shared memory of the ranks of one node: progress counters, announced calls, and staging
/// memory for tensors that the peers cannot read directly.
///
/// Each chunk of each collective has a tick, a number from 1 that is the same on every rank. A rank
/// posts a tick when its data may be read, and marks the tick reduced when it has read all that it
/// needs. Both counters only grow. Threads: as the Communicator.
class NodeGroup {
 public:
  static constexpr int kSlots = 2;
  /// Each slot of each rank has room for one chunk of a tensor, and as much for data of other
  /// nodes.
  static constexpr int64_t kChunkBytes = int64_t{512} << 10;
  /// Each slot of each rank has room for one small tensor.
  static constexpr size_t kSmallBytes = size_t{8} << 10;
  static constexpr uint64_t kCallsKept = 64;

  /// The size to pass to share_among_threads() or share_among_processes().
  static size_t block_bytes();

  enum class Peers { threads, processes };
  /// `blocks[k]`: the block of rank k. Use the group only after every rank has constructed its own.
  NodeGroup(std::vector<std::shared_ptr<SharedMemory>> blocks, int rank, Peers peers);
  ~NodeGroup();
  NodeGroup(const NodeGroup&) = delete;
  NodeGroup& operator=(const NodeGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(blocks_.size()); }

  /// Writes this rank's call. A peer that sees the next post() sees it.
  void announce(const CollectiveCall& call);
  /// The call of `rank` with this sequence number, which must be among its last kCallsKept.
  const CollectiveCall& call_of(int rank, uint64_t sequence) const;
  uint64_t last_announced(int rank) const;
  /// Whether every rank announced this call. Cheap: the digests travel with the counters.
  bool all_announced(const CollectiveCall& call) const;

  void post(uint64_t tick) { own().posted.store(tick, std::memory_order_release); }
  void mark_reduced(uint64_t tick) { own().reduced.store(tick, std::memory_order_release); }
  bool has_posted(int rank, uint64_t tick) const {
    return block(rank).posted.load(std::memory_order_acquire) >= tick;
  }
  bool has_reduced(int rank, uint64_t tick) const {
    return block(rank).reduced.load(std::memory_order_acquire) >= tick;
  }
  bool all_posted(uint64_t tick) const;
  bool all_reduced(uint64_t tick) const;

  char* contribution(int rank, int slot) const;
  /// contribution() of all ranks.
  const std::vector<const void*>& contributions(int slot) const {
    return contributions_[static_cast<size_t>(slot)];
  }
  char* arrival_slot(int rank, int slot) const;
  /// Element k: where rank k writes a small tensor, in the block of rank k + `rotation` (modulo
  /// size(); 0 to size() - 1).
  void* const* small_contributions(int slot, int rotation) const {
    return small_contributions_[static_cast<size_t>(slot)].data() + rotation;
  }

  /// Tells the peers that this rank will never post again.
  void leave() { own().left.store(1, std::memory_order_release); }
  /// As leave(), with the cause for cause_of() and the exit code of the error.
  void leave_because(const std::string& cause, int code);
  /// The cause that a rank gave when it left, and its code; may be empty and 0.
  std::string cause_of(int rank) const;
  int code_of(int rank) const;
  /// Tells the peers that in this round of ClosureCalls this rank makes no call after number
  /// `last`. Does nothing if it has said so in this round.
  void leave_step(uint64_t round, uint64_t last, const std::string& cause);
  /// The cause, if a rank makes no call `sequence` in this round.
  std::optional<std::string> left_step(int rank, uint64_t round, uint64_t sequence) const;
  /// The slot in which the peers see this rank's activity.
  std::shared_ptr<ActivitySlot> own_activity() const;
  const ActivitySlot& activity_of(int rank) const { return block(rank).activity; }
  /// Whether a signal or a debugger has stopped the rank's process. False for threads.
  bool is_stopped(int rank) const;
  /// Whether a rank has left, or its process is dead.
  bool is_gone(int rank) const;
  /// From now on is_gone() detects dead processes. Call once every rank has constructed its group.
  void watch_peers();
  /// Whether there are fewer cores than ranks.
  bool crowded() const;

 private:
  static constexpr uint64_t kDigestsKept = 4;
  static constexpr size_t kCauseBytes = 1024;
  struct alignas(64) CallSlot {
    CollectiveCall call;
  };
  struct Block {
    alignas(64) std::atomic<uint64_t> posted;
    std::atomic<uint64_t> announced;
    std::array<std::atomic<uint64_t>, kDigestsKept> digests;  // of the newest calls
    alignas(64) std::atomic<uint64_t> reduced;
    alignas(64) std::atomic<uint32_t> left;
    pid_t process;
    cpu_set_t cores;
    ActivitySlot activity;
    std::array<char, kCauseBytes> cause;  // read after `left`, as is the code
    int code;
    std::atomic<uint64_t> left_round;
    uint64_t last_call;                        // read after `left_round`
    std::array<char, kCauseBytes> step_cause;  // and this
    std::array<CallSlot, kCallsKept> calls;
  };
  static constexpr size_t staging_offset();

  char* small_slot(int rank, int slot) const;
  Block& own() const { return *own_; }
  Block& block(int rank) const {
    return *reinterpret_cast<Block*>(blocks_[static_cast<size_t>(rank)]->data());
  }

  std::vector<std::shared_ptr<SharedMemory>> blocks_;
  int rank_;
  Block* own_;
  std::array<std::vector<const void*>, kSlots> contributions_;
  std::array<std::vector<void*>, kSlots> small_contributions_;  // of all ranks, twice in a row
  std::vector<int> processes_;                                  // a pidfd for each rank, or -1
};

}  // namespace lockstep::detail
