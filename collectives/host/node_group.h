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
#include <string>
#include <vector>

namespace lockstep::detail {

/// The shared state of the ranks of one node: how far each one is, what it called, and staging
/// memory for chunks of tensors that the peers cannot reach.
///
/// Work is counted in ticks, the same on every rank: one for each chunk of each collective, from 1.
/// A rank posts a tick once its data may be read, and marks it reduced once it has read all that it
/// needs. Both counters only grow, and nothing is ever reset. Threads: as the Communicator.
class NodeGroup {
 public:
  static constexpr int kSlots = 2;
  /// Room for one chunk of a tensor, and for one of what comes from other nodes, in each slot of
  /// each rank.
  static constexpr size_t kChunkBytes = size_t{512} << 10;
  /// Room for one small tensor that all ranks read, in each slot of each rank.
  static constexpr size_t kSmallBytes = size_t{8} << 10;
  static constexpr uint64_t kCallsKept = 64;

  /// What share_among_threads() or share_among_processes() must be asked for.
  static size_t block_bytes();

  enum class Peers { threads, processes };
  /// `blocks[k]` is rank k's. A group is used only after every rank has constructed its own.
  NodeGroup(std::vector<std::shared_ptr<SharedMemory>> blocks, int rank, Peers peers);
  ~NodeGroup();
  NodeGroup(const NodeGroup&) = delete;
  NodeGroup& operator=(const NodeGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(blocks_.size()); }

  /// Shows the peers what this rank calls. Visible to whoever sees the next post().
  void announce(const CollectiveCall& call);
  /// What rank `rank` announced under a sequence number of the last kCallsKept.
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
  /// The same for all ranks.
  const std::vector<const void*>& contributions(int slot) const {
    return contributions_[static_cast<size_t>(slot)];
  }
  char* arrival_slot(int rank, int slot) const;
  /// Where each rank, in rank order, leaves a small tensor: in the block of the rank that is
  /// `rotation` (from 0 to size() - 1) further on.
  void* const* small_contributions(int slot, int rotation) const {
    return small_contributions_[static_cast<size_t>(slot)].data() + rotation;
  }

  /// This rank will never post again. Peers that wait for it can know.
  void leave() { own().left.store(1, std::memory_order_release); }
  /// The same, with the cause, which the peers may still read afterwards.
  void leave_because(const std::string& cause);
  /// Why a rank left; empty if it did not say so.
  std::string cause_of(int rank) const;
  /// What this rank does, as its peers see it.
  std::shared_ptr<ActivitySlot> own_activity() const;
  const ActivitySlot& activity_of(int rank) const { return block(rank).activity; }
  /// Whether a signal or a debugger has stopped the rank's process. False for threads.
  bool is_stopped(int rank) const;
  /// Whether a rank has left, or its process is dead.
  bool is_gone(int rank) const;
  /// From here on is_gone() notices processes that die. Once every rank has constructed its group.
  void watch_peers();
  /// Whether the ranks have fewer cores than they are.
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
    std::array<char, kCauseBytes> cause;  // read after `left`
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
  std::array<std::vector<void*>, kSlots> small_contributions_;  // of all ranks, twice
  std::vector<int> processes_;                                  // a pidfd for each rank, or -1
};

}  // namespace lockstep::detail
