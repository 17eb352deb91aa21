#pragma once

#include <cstring>
#include <vector>

#include "instruction.h"
#include "lanes.h"

namespace fake_cuda {

class Block;

/// 32 threads that execute one instruction at a time. Threads may part: each has its own place in
/// the code; those with the least place go on as a group until they come to the place of others.
class Warp {
 public:
  Warp(Block& block, int first_thread, int threads);

  /// Puts all threads to the begin of the kernel.
  void start();
  /// Executes at most that many instructions; less if all threads wait or have ended.
  void run(int64_t instructions);

  bool has_ended() const { return alive_ == 0; }
  /// Whether a thread can go on.
  bool is_able() const { return (alive_ & ~in_sync_ & ~in_barrier_) != 0; }
  int64_t instructions() const { return instructions_; }
  int first_thread() const { return first_thread_; }
  Block& block() { return block_; }

  // Registers.
  const uint32_t* raw(const Operand& o, int word = 0) const {
    return (o.is_literal ? literals_ : registers_.data())[o.index + word].v;
  }
  /// With the operand's sign and inversion, as integers have them.
  const uint32_t* integer(const Operand& o, Lanes& place) const;
  /// With the operand's sign and absolute value, as floats have them.
  const float* real(const Operand& o, Lanes& place) const;
  const uint32_t* lanes(int index) const { return registers_[index].v; }
  uint32_t register_of(int index, int lane) const { return registers_[index].v[lane]; }
  void set_register(int index, int lane, uint32_t value) {
    if (index >= kZeros) {
      registers_[index].v[lane] = value;
    }
  }
  /// A register of the kernel by its number; for what follows the rules of calls.
  uint64_t pair_of(int number, int lane) const {
    const int index = kFirstGeneral + number;
    return uint64_t(registers_[index + 1].v[lane]) << 32 | registers_[index].v[lane];
  }
  void set(const Operand& to, const uint32_t* values, uint32_t mask, int word = 0);
  void set_wide(const Operand& to, const uint64_t* values, uint32_t mask);
  /// The same value for all lanes, as uniform registers need it.
  void set_all(const Operand& to, uint32_t value) {
    Lanes all;
    for (uint32_t& lane : all.v) {
      lane = value;
    }
    set(to, all.v, kAllLanes);
  }

  // Predicates.
  uint32_t read(const Predicate& p) const { return predicates_[p.index] ^ p.flip; }
  uint32_t predicate(int index) const { return predicates_[index]; }
  void write(const Predicate& p, uint32_t value, uint32_t mask) {
    write(p.index, value, p.index >= kFirstUniformPredicate ? kAllLanes : mask);
  }
  void write(int index, uint32_t value, uint32_t mask) {
    if (index != kTrue && index != kUniformTrue) {
      predicates_[index] = (predicates_[index] & ~mask) | (value & mask);
    }
  }

  // Control of the group of threads that executes.
  uint32_t group() const { return group_; }
  uint32_t alive() const { return alive_; }
  /// The threads of the mask go on at the target.
  void jump(uint32_t mask, int target);
  /// Each thread of the mask goes on at its own place.
  void jump_to_each(uint32_t mask, const int* targets);
  void end_threads(uint32_t mask);
  /// The threads of the mask wait until all that take part have come here.
  void wait_for_warp(uint32_t mask, int barrier);
  void set_participants(uint32_t mask, int barrier, const uint32_t* participants);
  const uint32_t* participants(int barrier) const { return participants_[barrier]; }
  void remove_participants(uint32_t mask, int barrier);
  /// The threads of the mask wait at a barrier of the block.
  void wait_for_block(uint32_t mask, int barrier);
  void release_from_block(int barrier);
  uint32_t waiting_for_block() const { return in_barrier_; }
  /// A barrier that only WARPSYNC uses.
  static constexpr int kWarpSync = 16;

 private:
  bool choose_group();
  void part();
  void release_complete();

  Block& block_;
  const Instruction* code_;
  int code_size_;
  const Lanes* literals_;
  int first_thread_;
  int threads_;
  std::vector<Lanes> registers_;
  uint32_t predicates_[kPredicates] = {};

  uint32_t alive_ = 0;
  uint32_t in_sync_ = 0;     // waits for threads of the warp
  uint32_t in_barrier_ = 0;  // waits for threads of the block
  int place_[kLanes] = {};   // of each thread, except in the group that executes
  uint32_t participants_[kWarpSync + 1][kLanes] = {};  // as each thread knows them
  uint8_t sync_at_[kLanes] = {};
  uint8_t barrier_at_[kLanes] = {};

  // The group that executes.
  uint32_t group_ = 0;
  int at_ = 0;
  int next_ = 0;
  int stop_ = 0;  // where others wait to be joined
  bool is_parted_ = false;
  bool is_turn_of_other_ = false;  // the group at the least place has gone on for long
  int turn_ = 0;                   // the thread whose group is next then
  int64_t instructions_ = 0;
};

}  // namespace fake_cuda
