#pragma once

#include <cstdint>

namespace fake_cuda {

/// What becomes of an access to closed memory.
enum class FaultAnswer {
  kNotMine,  // the handler that was there before has it
  kRetry,    // the memory is open now
  kStep,     // the memory is open; it shall be closed again after this instruction
};

struct Fault {
  uintptr_t address = 0;
  bool is_write = false;
  uintptr_t instruction = 0;
};

/// Calls on_fault(fault) in the handler of SIGSEGV, and after_step() when the
/// instruction of a kStep has run, both in the thread of the access. A handler that was there, or
/// that the program installs later, still gets the faults that are not ours: call this again now
/// and then. Threads: any.
void catch_faults(FaultAnswer (*on_fault)(const Fault& fault), void (*after_step)());

}  // namespace fake_cuda
