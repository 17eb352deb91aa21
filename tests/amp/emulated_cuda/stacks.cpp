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

}  // namespace

Stacks::Stacks(size_t count) : count_(count) {
  void* const memory = mmap(nullptr, count * kStack, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  memory_ = static_cast<std::byte*>(memory);
}

Stacks::~Stacks() {
  munmap(memory_, count_ * kStack);
}

/// At another place of a page for each, so that they do not compete for the same cache lines.
void* Stacks::top(size_t number, void (*entry)()) const {
  constexpr size_t kColours = 64;
  std::byte* const end = memory_ + (number + 1) * kStack - number % kColours * 128;
  uintptr_t* const top = reinterpret_cast<uintptr_t*>(end) - 2 - kSaved;
  std::memset(top, 0, (kSaved + 2) * sizeof *top);
  top[kSaved] = reinterpret_cast<uintptr_t>(entry);  // returned to, with the stack of a call
  return top;
}

}  // namespace lockstep::emulated_cuda
