#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "../common/work.h"
#include "../memory/races.h"

/// The work of all streams of all devices as a graph, and the one thread that executes it.
namespace fake_cuda {

/// Page-locked memory that a piece reads or writes, closed to the host while the piece is pending.
struct HostRange {
  const void* memory = nullptr;
  size_t bytes = 0;
  bool writes = false;
};

/// What is enqueued, or recorded in a graph.
struct Piece {
  Piece() = default;
  explicit Piece(const char* name, Work function = nullptr)
      : what(name), work(std::move(function)) {}

  const char* what = "";  // lives as long as the process: interned()
  Work work;              // nothing: an event, a wait, a node without work
  bool is_kernel = false;
  bool runs_after_errors = false;  // cudaStreamAddCallback
  std::vector<HostRange> host_ranges;
};

/// A text that is never freed.
const char* interned(const std::string& text);

struct Item;
using ItemPtr = std::shared_ptr<Item>;

/// A piece in the queue. All members are protected by the queue's mutex, except those of the piece
/// that runs.
struct Item {
  Piece piece;
  uint32_t lane = 0;
  uint64_t number = 0;
  Clock before;  // what is ordered before it, only with FAKE_CUDA_RACES=1
  size_t waits_for = 0;
  std::vector<ItemPtr> then;
  std::vector<std::weak_ptr<Item>> after;
  std::vector<uint64_t> pending_host;  // of begin_pending()
  bool wanted = false;
  bool done = false;
  std::chrono::steady_clock::time_point ended;
};

/// A piece runs as late as the program permits: when the host waits for it or polls it (it is
/// "wanted" then, and all that it comes after), else after an idle time, and among several that may
/// run the seed chooses (FAKE_CUDA_ORDER=late). So a program that lacks a wait sees old memory.
class WorkQueue {
 public:
  using Lock = std::unique_lock<std::mutex>;

  static WorkQueue& get();
  /// Protects streams, events, captures and graphs too.
  std::mutex& mutex() { return mutex_; }

  // The lock is held for all of these.
  /// `after`: what it comes after; null and what is done are passed over.
  ItemPtr submit(Piece piece, uint32_t lane, uint64_t number, const std::vector<ItemPtr>& after);
  /// The host waits until the item is done. No-op for null.
  void wait(Lock& lock, const ItemPtr& item);
  /// Whether the item is done. What is polled for is wanted from then on: a poll makes progress.
  bool poll(Lock& lock, const ItemPtr& item);

  /// Whether `item` comes before all that is submitted after `last` (may be null), by what the host
  /// and the streams have waited for. Only with FAKE_CUDA_RACES=1.
  bool comes_before(const Item& item, const ItemPtr& last) const {
    return host_.knows(item.lane, item.number) ||
           (last && last->before.knows(item.lane, item.number));
  }
  /// The host knows that the work is done: what the item comes after, and itself.
  void host_has_waited_for(const Item& item);

  /// While it lives, the program is not idle: it prepares work, which may take longer than the idle
  /// time. Without the lock.
  class Preparation {
   public:
    Preparation() { ++get().preparations_; }
    ~Preparation() { --get().preparations_; }
    Preparation(const Preparation&) = delete;
    Preparation& operator=(const Preparation&) = delete;
  };

  /// Ends the device's thread after its current piece; for the end of the process.
  void stop();

 private:
  enum class Order { kLate, kRandom, kEager };

  WorkQueue();
  void run();
  std::vector<size_t> choices();
  bool execute(Lock& lock, Item& item);
  /// Gives back what the item was, for a destruction without the lock.
  Piece finish(const ItemPtr& item);
  static void want(const ItemPtr& item);

  std::atomic<int> preparations_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ItemPtr> ready_;
  size_t pending_ = 0;
  Clock host_;  // what the host has waited for
  std::chrono::steady_clock::time_point last_progress_;
  Order order_ = Order::kLate;
  std::chrono::microseconds idle_;
  std::mt19937 random_;
  bool started_ = false;
  bool stopping_ = false;
  bool running_ = false;
};

/// The item that this thread executes, else null.
const Item* running_item();

}  // namespace fake_cuda
