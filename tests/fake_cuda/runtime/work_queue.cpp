#include "work_queue.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "../memory/device_guard.h"
#include "../memory/host_touches.h"
#include "errors.h"

namespace fake_cuda {

namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

constexpr microseconds kPollsEvery{200};
constexpr microseconds kRefusedPause{50};
constexpr microseconds kPollOfHost{20};

thread_local const Item* running = nullptr;

}  // namespace

const Item* running_item() {
  return running;
}

const char* interned(const std::string& text) {
  static auto& mutex = *new std::mutex;
  static auto& texts = *new std::set<std::string>;
  std::lock_guard lock(mutex);
  return texts.insert(text).first->c_str();
}

WorkQueue& WorkQueue::get() {
  static auto& queue = *new WorkQueue;  // never destroyed: the device's thread uses it to the end
  return queue;
}

WorkQueue::WorkQueue()
    : last_progress_(steady_clock::now()),
      idle_(setting("FAKE_CUDA_IDLE_US", 2000L)),
      random_(static_cast<unsigned>(setting("FAKE_CUDA_SEED", 1L))) {
  const std::string order = setting("FAKE_CUDA_ORDER", "late");
  if (order == "eager") {
    order_ = Order::kEager;
  } else if (order == "random") {
    order_ = Order::kRandom;
  } else if (order != "late") {
    std::fprintf(stderr, "fake cuda: FAKE_CUDA_ORDER=%s is not late, random or eager\n",
                 order.c_str());
    std::abort();
  }
}

ItemPtr WorkQueue::submit(Piece piece, uint32_t lane, uint64_t number,
                          const std::vector<ItemPtr>& after) {
  auto item = std::make_shared<Item>();
  item->piece = std::move(piece);
  item->lane = lane;
  item->number = number;
  const bool races = races_are_checked();
  if (races) {
    item->before.join(host_);
    item->before.set(lane, number);
  }
  for (const ItemPtr& before : after) {
    if (before && races) {
      item->before.join(before->before);
    }
    if (before && !before->done) {
      before->then.push_back(item);
      item->after.push_back(before);
      ++item->waits_for;
    }
  }
  for (const HostRange& range : item->piece.host_ranges) {
    item->pending_host.push_back(
        begin_pending(range.memory, range.bytes, range.writes, item->piece.what, lane, number));
  }
  ++pending_;
  last_progress_ = steady_clock::now();
  if (item->waits_for == 0) {
    ready_.push_back(item);
  }
  if (!started_) {
    started_ = true;
    std::thread([this] { run(); }).detach();
  }
  changed_.notify_all();
  return item;
}

void WorkQueue::want(const ItemPtr& item) {
  std::vector<ItemPtr> open{item};
  while (!open.empty()) {
    const ItemPtr next = open.back();
    open.pop_back();
    if (next->done || next->wanted) {
      continue;
    }
    next->wanted = true;
    for (const std::weak_ptr<Item>& before : next->after) {
      if (ItemPtr held = before.lock()) {
        open.push_back(std::move(held));
      }
    }
  }
}

void WorkQueue::wait(Lock& lock, const ItemPtr& item) {
  if (!item) {
    return;
  }
  if (!item->done) {
    want(item);
    changed_.notify_all();
    changed_.wait(lock, [&] { return item->done || stopping_; });
  }
  host_has_waited_for(*item);
}

void WorkQueue::host_has_waited_for(const Item& item) {
  if (races_are_checked()) {
    host_.join(item.before);
    host_learns(host_);
  }
}

bool WorkQueue::poll(Lock& lock, const ItemPtr& item) {
  if (!item) {
    return true;
  }
  if (!item->done) {
    want(item);
    changed_.notify_all();
    changed_.wait_for(lock, kPollOfHost);
  }
  if (item->done) {
    host_has_waited_for(*item);
  }
  return item->done;
}

/// Positions in ready_ of what may run now.
std::vector<size_t> WorkQueue::choices() {
  // Also while the host waits: what it waits for may need another rank, which needs other streams.
  const bool idle = preparations_ == 0 && steady_clock::now() - last_progress_ > idle_;
  const bool any =
      order_ == Order::kEager || idle || (order_ == Order::kRandom && random_() % 2 == 0);
  std::vector<size_t> found;
  for (size_t i = 0; i < ready_.size(); ++i) {
    if (any || ready_[i]->wanted) {
      found.push_back(i);
    }
  }
  return found;
}

void WorkQueue::run() {
  Lock lock(mutex_);
  size_t refused = 0;
  while (!stopping_) {
    const std::vector<size_t> found = choices();
    if (found.empty()) {
      close_device_memory();
      changed_.wait_for(lock, pending_ == 0 ? microseconds(100000) : kPollsEvery);
      continue;
    }
    const size_t at = found[order_ == Order::kEager ? 0 : random_() % found.size()];
    const ItemPtr item = ready_[at];
    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(at));
    if (execute(lock, *item)) {
      refused = 0;
      Piece spent = finish(item);
      if (spent.work) {
        lock.unlock();  // what the work holds may call CUDA when it goes
        spent.work = nullptr;
        lock.lock();
      }
    } else {
      ready_.push_back(item);
      if (++refused > ready_.size()) {
        changed_.wait_for(lock, kRefusedPause);
      }
    }
  }
  changed_.notify_all();
}

/// Whether the item is done.
bool WorkQueue::execute(Lock& lock, Item& item) {
  if (!item.piece.work || (sticky_error() != cudaSuccess && !item.piece.runs_after_errors)) {
    return true;  // after an error nothing runs, but all waits end
  }
  running_ = true;
  lock.unlock();
  running = &item;
  bool done = true;
  try {
    const DeviceScope device;
    done = item.piece.work();
  } catch (const DeviceFault& fault) {
    std::fprintf(stderr, "fake cuda: %s: %s\n", item.piece.what, fault.what());
    set_sticky_error(fault.code);
  }
  running = nullptr;
  lock.lock();
  running_ = false;
  return done;
}

Piece WorkQueue::finish(const ItemPtr& item) {
  item->done = true;
  item->ended = last_progress_ = steady_clock::now();
  for (const ItemPtr& next : item->then) {
    if (--next->waits_for == 0) {
      ready_.push_back(next);
    }
  }
  item->then.clear();
  item->after.clear();
  for (const uint64_t pending : item->pending_host) {
    end_pending(pending);
  }
  --pending_;
  changed_.notify_all();
  return std::move(item->piece);
}

void WorkQueue::stop() {
  Lock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, std::chrono::seconds(1), [this] { return !running_; });
}

}  // namespace fake_cuda
