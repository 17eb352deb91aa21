#include "block.h"

#include <algorithm>

namespace fake_cuda {
namespace {

// Warps that wait in a loop for each other must take turns.
constexpr int64_t kTurn = 100000;
// More than any kernel of a test: a wait for what never comes.
constexpr int64_t kMostInstructions = 4'000'000'000;

}  // namespace

Block::Block(Launch& launch)
    : launch_(launch), memory_(*this, launch.program()), shared_(launch.shared_bytes()) {
  const dim3 size = launch.block();
  const int threads = int(size.x * size.y * size.z);
  local_.resize(size_t(threads) * launch.local_bytes());
  warps_.reserve(size_t(threads + kLanes - 1) / kLanes);
  for (int first = 0; first < threads; first += kLanes) {
    warps_.emplace_back(*this, first, std::min(kLanes, threads - first));
  }
  for (Barrier& barrier : barriers_) {
    barrier.arrived.resize(warps_.size());
  }
}

int64_t Block::instructions() const {
  int64_t sum = 0;
  for (const Warp& warp : warps_) {
    sum += warp.instructions();
  }
  return sum;
}

void Block::run(dim3 position) {
  position_ = position;
  memory_.start();
  // A kernel that reads what it did not write finds NaN.
  std::fill(shared_.begin(), shared_.end(), char(0xff));
  std::fill(local_.begin(), local_.end(), char(0xff));
  for (Warp& warp : warps_) {
    warp.start();
  }
  for (;;) {
    bool is_done = true, has_run = false;
    for (Warp& warp : warps_) {
      if (warp.is_able()) {
        warp.run(kTurn);
        has_run = true;
      }
      is_done &= warp.has_ended();
    }
    if (is_done) {
      return;
    }
    if (!has_run) {
      throw DeviceFault(cudaErrorLaunchFailure,
                        "threads wait for each other for ever in " + program().kernel);
    }
    if (instructions() > kMostInstructions) {
      throw DeviceFault(cudaErrorLaunchTimeout, program().kernel + " does not end");
    }
  }
}

void Block::arrive(Warp& warp, uint32_t mask, int barrier, uint32_t threads, bool waits) {
  Barrier& at = barriers_[barrier];
  at.arrived[size_t(warp.first_thread()) / kLanes] |= mask;
  at.threads = threads;
  at.is_used = any_barrier_ = true;
  if (waits) {
    warp.wait_for_block(mask, barrier);
  }
  release_complete();
}

void Block::reduce(int barrier, uint32_t mask, uint32_t condition, Reduction reduction) {
  Barrier& at = barriers_[barrier];
  at.has_condition = true;
  at.reduction = reduction;
  at.holds += uint32_t(__builtin_popcount(mask & condition));
  at.fails += uint32_t(__builtin_popcount(mask & ~condition));
}

bool Block::is_complete(const Barrier& barrier) const {
  if (!barrier.is_used) {
    return false;
  }
  uint32_t arrived = 0;
  bool all = true;
  for (size_t n = 0; n < warps_.size(); ++n) {
    const uint32_t here = barrier.arrived[n], alive = warps_[n].alive();
    all &= (alive & ~here) == 0;
    // A number of threads counts whole warps.
    if (here != 0) {
      arrived += (alive & ~here) == 0 ? kLanes : uint32_t(__builtin_popcount(here));
    }
  }
  return barrier.threads == 0 ? all : arrived >= barrier.threads;
}

void Block::release_complete() {
  if (!any_barrier_) {
    return;
  }
  any_barrier_ = false;
  for (int n = 0; n < kBarriers; ++n) {
    Barrier& barrier = barriers_[n];
    if (is_complete(barrier)) {
      if (barrier.has_condition) {
        reduced_ = barrier.reduction == Reduction::kCount ? barrier.holds
                   : barrier.reduction == Reduction::kAnd ? barrier.fails == 0
                                                          : barrier.holds != 0;
      }
      barrier.holds = barrier.fails = 0;
      barrier.is_used = barrier.has_condition = false;
      std::fill(barrier.arrived.begin(), barrier.arrived.end(), 0);
      for (Warp& warp : warps_) {
        warp.release_from_block(n);
      }
    }
    any_barrier_ |= barrier.is_used;
  }
}

}  // namespace fake_cuda
