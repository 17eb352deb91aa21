#include <cstdio>

#include "../memory/memory.h"
#include "elementwise.h"
#include "operations.h"

namespace fake_cuda::operations {
namespace {

constexpr int kBytesOfInstruction = 16;

/// A text in the program's memory, for messages.
std::string text_at(uint64_t address) {
  const Allocation allocation = allocation_of(address);
  std::string text;
  while (address - allocation.begin < allocation.bytes && text.size() < 500) {
    const char c = *reinterpret_cast<const char*>(address++);
    if (c == '\0') {
      return text;
    }
    text += c;
  }
  return text.empty() ? "?" : text;
}

/// A call of __assertfail(message, file, line, function, ...), whose arguments are in R4 and on.
[[noreturn]] void fail_assertion(Warp& warp, uint32_t mask) {
  const int lane = __builtin_ctz(mask);
  const dim3 size = warp.block().size(), at = warp.block().position();
  const unsigned thread = unsigned(warp.first_thread() + lane);
  char place[120];
  snprintf(place, sizeof place, ": block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `", at.x, at.y,
           at.z, thread % size.x, thread / size.x % size.y, thread / size.x / size.y);
  const std::string what =
      text_at(warp.pair_of(6, lane)) + ":" + std::to_string(uint32_t(warp.pair_of(8, lane))) +
      ": " + text_at(warp.pair_of(10, lane)) + place + text_at(warp.pair_of(4, lane)) + "` failed.";
  fprintf(stderr, "%s\n", what.c_str());
  throw DeviceFault(cudaErrorAssert, what);
}

}  // namespace

void nothing(Warp&, const Instruction&, uint32_t) {}

void branch(Warp& warp, const Instruction& i, uint32_t mask) {
  uint32_t taken = mask & warp.read(i.p);
  if (i.mods[Mod::kDIV] || i.mods[Mod::kCONV]) {
    // Whether the threads that should be here (all, or those in a) are; no others.
    Lanes space;
    const uint32_t wanted =
        (i.a.is_present ? warp.integer(i.a, space)[__builtin_ctz(mask)] : kAllLanes) & warp.alive();
    const bool is_together = warp.group() == wanted;
    taken = is_together == i.mods[Mod::kCONV] ? taken : 0;
  }
  warp.jump(taken, i.target);
}

/// Each thread has its own target: the register holds its distance from the next instruction, less
/// the number.
void branch_indexed(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t* a = warp.raw(i.a);
  int targets[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int32_t to = i.pc + kBytesOfInstruction + int32_t(i.number) + int32_t(a[lane]);
    targets[lane] = to / kBytesOfInstruction;
  }
  warp.jump_to_each(mask, targets);
}

void call(Warp& warp, const Instruction& i, uint32_t mask) {
  mask &= warp.read(i.p);
  if (i.mods[Mod::kREL] && i.target >= 0) {
    warp.jump(mask, i.target);
    return;
  }
  if (mask == 0) {
    return;
  }
  if (!i.mods[Mod::kABS] || !i.a.is_register) {
    cannot_execute(warp, i);
  }
  const int lane = __builtin_ctz(mask);
  const uint64_t target = uint64_t(warp.raw(i.a, 1)[lane]) << 32 | warp.raw(i.a)[lane];
  const std::vector<std::string>& functions = warp.block().launch().kernel().driver_functions;
  const uint64_t number = target - Cubin::kDriverFunctions;
  const std::string name = number < functions.size() ? functions[number] : "?";
  if (name == "__assertfail") {
    fail_assertion(warp, mask);
  }
  throw DeviceFault(cudaErrorNotSupported, "the kernel " + warp.block().program().kernel +
                                               " calls " + name + ", which does not exist here");
}

void return_from(Warp& warp, const Instruction& i, uint32_t mask) {
  if (!i.mods[Mod::kREL]) {
    cannot_execute(warp, i);
  }
  const uint32_t* a = warp.raw(i.a);
  int targets[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    targets[lane] = int32_t(a[lane] + i.number) / kBytesOfInstruction;
  }
  warp.jump_to_each(mask, targets);
}

void end(Warp& warp, const Instruction& i, uint32_t mask) {
  mask &= warp.read(i.p);
  if (mask != 0) {
    warp.end_threads(mask);
  }
}

void trap(Warp& warp, const Instruction& i, uint32_t) {
  throw DeviceFault(cudaErrorAssert, "a trap at " + std::to_string(i.pc) + " of the kernel " +
                                         warp.block().program().kernel);
}

/// The address of the instruction; the kernel begins at zero.
void program_counter(Warp& warp, const Instruction& i, uint32_t mask) {
  set_each(warp, i, mask, [&](int) { return uint32_t(i.pc); });
  warp.set(i.to, Lanes{}.v, mask, 1);
}

/// The threads that are here will meet again.
void set_sync(Warp& warp, const Instruction& i, uint32_t mask) {
  mask &= warp.read(i.p);
  uint32_t participants[kLanes];
  for (uint32_t& lane : participants) {
    lane = mask;
  }
  warp.set_participants(mask, i.barrier, participants);
}

void sync(Warp& warp, const Instruction& i, uint32_t mask) {
  mask &= warp.read(i.p);
  if (mask != 0) {
    warp.wait_for_warp(mask, i.barrier);
  }
}

/// Threads that will not come to the barrier.
void leave_sync(Warp& warp, const Instruction& i, uint32_t mask) {
  mask &= warp.read(i.p);
  if (mask != 0) {
    warp.remove_participants(mask, i.barrier);
  }
}

/// All threads that the mask in a names come here.
void warp_sync(Warp& warp, const Instruction& i, uint32_t mask) {
  mask &= warp.read(i.p);
  if (mask == 0) {
    return;
  }
  const uint32_t* a = warp.raw(i.a);
  const uint32_t missing = a[__builtin_ctz(mask)] & warp.alive() & ~mask;
  if (missing == 0) {
    return;
  }
  warp.set_participants(mask, Warp::kWarpSync, a);
  warp.wait_for_warp(mask, Warp::kWarpSync);
}

/// Between a convergence barrier and a register.
void move_barrier(Warp& warp, const Instruction& i, uint32_t mask) {
  if (!i.to.is_present) {
    warp.set_participants(mask, i.barrier, warp.raw(i.a));
    return;
  }
  Lanes values;
  memcpy(values.v, warp.participants(i.barrier), sizeof values.v);
  warp.set(i.to, values.v, mask);
  if (i.mods[Mod::kCLEAR]) {
    warp.set_participants(mask, i.barrier, Lanes{}.v);
  }
}

void block_barrier(Warp& warp, const Instruction& i, uint32_t mask) {
  const int lane = __builtin_ctz(mask);
  const uint32_t barrier = warp.raw(i.a)[lane];
  const uint32_t threads = i.b.is_present ? warp.raw(i.b)[lane] : 0;
  const bool is_reduction = i.mods[Mod::kRED];
  if (barrier >= Block::kBarriers || is_reduction != i.p.is_present ||
      (!is_reduction && !i.mods[Mod::kSYNC] && !i.mods[Mod::kARV])) {
    cannot_execute(warp, i);
  }
  if (is_reduction) {
    const Block::Reduction reduction = i.mods[Mod::kOR]    ? Block::Reduction::kOr
                                       : i.mods[Mod::kAND] ? Block::Reduction::kAnd
                                                           : Block::Reduction::kCount;
    warp.block().reduce(int(barrier), mask, warp.read(i.p), reduction);
  }
  warp.block().arrive(warp, mask, int(barrier), threads, !i.mods[Mod::kARV]);
}

/// What the last barrier with a condition found.
void barrier_result(Warp& warp, const Instruction& i, uint32_t mask) {
  if (!i.mods[Mod::kRESULT]) {
    cannot_execute(warp, i);
  }
  const uint32_t result = warp.block().reduced();
  set_each(warp, i, mask, [&](int) { return result; });
  if (i.to_flag.is_present) {
    warp.write(i.to_flag, result != 0 ? kAllLanes : 0, mask);
  }
}

}  // namespace fake_cuda::operations
