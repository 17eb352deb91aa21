#include "stacks.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>

// What a function keeps for its caller goes to the old stack and comes from the new one.
asm(R"(
  .text
  .globl lockstep_switch_stack
  .type lockstep_switch_stack, @function
lockstep_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size lockstep_switch_stack, .-lockstep_switch_stack
)");

namespace lockstep::emulated_cuda {
namespace {

constexpr size_t kStack = size_t{64} << 10;
constexpr size_t kSaved = 6;  // registers that lockstep_switch_stack() takes from a stack

std::byte* mapped(void* place, size_t bytes, int flags) {
  void* const memory = mmap(place, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  return static_cast<std::byte*>(memory);
}

/// Stacks begin at different places of a page, so that their tops do not compete for a cache line.
void* fresh_top(std::byte* stack, size_t number, void (*entry)()) {
  constexpr size_t kColours = 64;
  auto* const end = reinterpret_cast<uintptr_t*>(stack + kStack - number % kColours * 128);
  uintptr_t* const top = end - 2 - kSaved;
  std::memset(top, 0, (kSaved + 2) * sizeof *top);
  top[kSaved] = reinterpret_cast<uintptr_t>(entry);  // returned to, with the stack of a call
  return top;
}

}  // namespace

Stacks::Stacks(size_t count, void (*entry)())
    : count_(count), entry_(entry), memory_(mapped(nullptr, count * kStack, 0)) {}

Stacks::~Stacks() {
  munmap(memory_, count_ * kStack);
}

std::vector<void*> Stacks::begin() {
  mapped(memory_, count_ * kStack, MAP_FIXED);
  std::vector<void*> tops;
  for (size_t k = 0; k < count_; ++k) {
    tops.push_back(fresh_top(memory_ + k * kStack, k, entry_));
  }
  return tops;
}

}  // namespace lockstep::emulated_cuda
