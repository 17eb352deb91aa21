#include "warp.h"

#include <algorithm>

#include "block.h"

namespace fake_cuda {
namespace {

// A group that waits in a loop for other threads of its warp must let them go on.
constexpr int64_t kTurn = 20000;

}  // namespace

Warp::Warp(Block& block, int first_thread, int threads)
    : block_(block),
      code_(block.program().code.data()),
      code_size_(int(block.program().code.size())),
      literals_(block.literals()),
      first_thread_(first_thread),
      threads_(threads),
      // A wide access to the last register may read some more.
      registers_(size_t(kFirstGeneral + block.program().registers + kZeros)) {
  memset(registers_.data(), 0, registers_.size() * sizeof(Lanes));
}

void Warp::start() {
  alive_ = threads_ == kLanes ? kAllLanes : (1u << threads_) - 1;
  in_sync_ = in_barrier_ = group_ = 0;
  std::fill(place_, place_ + kLanes, 0);
  // Registers that a kernel reads before it writes them hold what nobody expects.
  for (size_t n = kFirstUniform; n < registers_.size(); ++n) {
    memset(&registers_[n], 0xff, sizeof(Lanes));
  }
  std::fill(predicates_, predicates_ + kPredicates, 0);
  predicates_[kTrue] = predicates_[kUniformTrue] = kAllLanes;
}

const uint32_t* Warp::integer(const Operand& o, Lanes& place) const {
  const uint32_t* from = raw(o);
  if (o.invert) {
    for (int lane = 0; lane < kLanes; ++lane) {
      place.v[lane] = ~from[lane];
    }
    return place.v;
  }
  if (o.negate) {
    for (int lane = 0; lane < kLanes; ++lane) {
      place.v[lane] = -from[lane];
    }
    return place.v;
  }
  return from;
}

const float* Warp::real(const Operand& o, Lanes& place) const {
  const uint32_t* from = raw(o);
  if (o.absolute || o.negate) {
    const uint32_t keep = o.absolute ? 0x7fffffff : ~0u, flip = o.negate ? 0x80000000 : 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      place.v[lane] = (from[lane] & keep) ^ flip;
    }
    from = place.v;
  }
  return reinterpret_cast<const float*>(from);
}

void Warp::set(const Operand& to, const uint32_t* values, uint32_t mask, int word) {
  if (to.index < kZeros) {
    return;
  }
  uint32_t* lanes = registers_[to.index + word].v;
  if (mask == kAllLanes) {
    memmove(lanes, values, sizeof(Lanes));
    return;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    lanes[lane] = mask >> lane & 1 ? values[lane] : lanes[lane];
  }
}

void Warp::set_wide(const Operand& to, const uint64_t* values, uint32_t mask) {
  Lanes low, high;
  for (int lane = 0; lane < kLanes; ++lane) {
    low.v[lane] = uint32_t(values[lane]);
    high.v[lane] = uint32_t(values[lane] >> 32);
  }
  set(to, low.v, mask);
  set(to, high.v, mask, 1);
}

/// Takes the threads that execute next: those at the least place, and at times others.
bool Warp::choose_group() {
  const uint32_t able = alive_ & ~in_sync_ & ~in_barrier_;
  if (able == 0) {
    group_ = 0;
    return false;
  }
  int least = INT32_MAX;
  each_lane(able, [&](int lane) { least = std::min(least, place_[lane]); });
  at_ = least;
  if (is_turn_of_other_) {
    const uint32_t later = able & (kAllLanes << turn_);
    at_ = place_[__builtin_ctz(later != 0 ? later : able)];
    turn_ = (turn_ + 1) % kLanes;
  }
  stop_ = INT32_MAX;
  group_ = 0;
  each_lane(able, [&](int lane) {
    if (place_[lane] == at_) {
      group_ |= 1u << lane;
    } else if (place_[lane] > at_) {
      stop_ = std::min(stop_, place_[lane]);
    }
  });
  is_parted_ = false;
  return true;
}

void Warp::run(int64_t instructions) {
  const int64_t end = instructions_ + instructions;
  while (instructions_ < end && choose_group()) {
    const int64_t turn = std::min(end, instructions_ + kTurn);
    while (!is_parted_) {
      if (at_ < 0 || at_ >= code_size_) {
        throw DeviceFault(cudaErrorInvalidPc,
                          "a jump out of the kernel " + block_.program().kernel);
      }
      const Instruction& i = code_[at_];
      ++instructions_;
      next_ = at_ + 1;
      const uint32_t mask = group_ & (predicates_[i.guard] ^ i.guard_flip);
      if (mask != 0) {
        i.execute(*this, i, i.is_uniform ? kAllLanes : mask);
      }
      if (is_parted_) {
        break;
      }
      at_ = next_;
      if (at_ >= stop_ || instructions_ >= turn) {
        part();
      }
    }
    is_turn_of_other_ = !is_turn_of_other_ && instructions_ >= turn;
  }
}

/// The group ends: its threads keep their places.
void Warp::part() {
  each_lane(group_, [&](int lane) { place_[lane] = at_; });
  is_parted_ = true;
}

void Warp::jump(uint32_t mask, int target) {
  mask &= group_;
  if (mask == group_) {
    next_ = target;
    return;
  }
  each_lane(group_, [&](int lane) { place_[lane] = mask >> lane & 1 ? target : next_; });
  is_parted_ = mask != 0;
}

void Warp::jump_to_each(uint32_t mask, const int* targets) {
  each_lane(group_, [&](int lane) { place_[lane] = mask >> lane & 1 ? targets[lane] : next_; });
  is_parted_ = true;
}

void Warp::end_threads(uint32_t mask) {
  alive_ &= ~mask;
  each_lane(group_, [&](int lane) { place_[lane] = next_; });
  is_parted_ = true;
  release_complete();
  block_.release_complete();
}

void Warp::set_participants(uint32_t mask, int barrier, const uint32_t* participants) {
  each_lane(mask, [&](int lane) { participants_[barrier][lane] = participants[lane]; });
}

void Warp::remove_participants(uint32_t mask, int barrier) {
  for (uint32_t& participants : participants_[barrier]) {
    participants &= ~mask;
  }
  each_lane(group_, [&](int lane) { place_[lane] = next_; });
  is_parted_ = true;
  release_complete();
}

void Warp::wait_for_warp(uint32_t mask, int barrier) {
  each_lane(group_, [&](int lane) { place_[lane] = mask >> lane & 1 ? at_ : next_; });
  each_lane(mask, [&](int lane) { sync_at_[lane] = uint8_t(barrier); });
  in_sync_ |= mask;
  is_parted_ = true;
  release_complete();
}

/// Lets threads go on when all that they wait for have come to the same place.
void Warp::release_complete() {
  for (uint32_t left = in_sync_; left != 0;) {
    const int lane = __builtin_ctz(left);
    const uint32_t wanted = (participants_[sync_at_[lane]][lane] & alive_) | 1u << lane;
    uint32_t here = 0;
    each_lane(in_sync_, [&](int other) {
      here |= uint32_t(place_[other] == place_[lane] && sync_at_[other] == sync_at_[lane]) << other;
    });
    if ((wanted & ~here) != 0) {
      left &= left - 1;
      continue;
    }
    in_sync_ &= ~wanted;
    each_lane(wanted, [&](int other) { ++place_[other]; });
    left &= ~wanted;
  }
}

void Warp::wait_for_block(uint32_t mask, int barrier) {
  each_lane(group_, [&](int lane) { place_[lane] = mask >> lane & 1 ? at_ : next_; });
  each_lane(mask, [&](int lane) { barrier_at_[lane] = uint8_t(barrier); });
  in_barrier_ |= mask;
  is_parted_ = true;
}

void Warp::release_from_block(int barrier) {
  each_lane(in_barrier_, [&](int lane) {
    if (barrier_at_[lane] == barrier) {
      in_barrier_ &= ~(1u << lane);
      ++place_[lane];
    }
  });
}

}  // namespace fake_cuda
