#pragma once

#include <cstdint>
#include <vector>

#include "instruction.h"
#include "lanes.h"

namespace fake_cuda {

class Block;
class Warp;

/// The memory that a kernel sees through global and generic addresses. Each access is checked
/// against the allocations, and against work of other streams if races are looked for.
class DeviceMemory {
 public:
  DeviceMemory(Block& block, const Program& program);

  /// A block begins.
  void start();

  /// Where the threads of the mask find the bytes of an access. Throws DeviceFault.
  void places_of(Warp& warp, const Instruction& i, const uint64_t* addresses, uint32_t mask,
                 bool writes, char** places);
  /// The same in shared memory and in each thread's local memory, by 32-bit addresses.
  void shared_places_of(Warp& warp, const Instruction& i, const uint64_t* addresses, uint32_t mask,
                        bool writes, char** places);
  void local_places_of(Warp& warp, const Instruction& i, const uint64_t* addresses, uint32_t mask,
                       bool writes, char** places);

 private:
  /// An allocation that an instruction has used.
  struct Range {
    uint64_t begin = 1;
    uint64_t bytes = 0;
  };
  char* place_of(Warp& warp, const Instruction& i, uint64_t address, int lane, bool writes);
  [[noreturn]] void fault(Warp& warp, const Instruction& i, uint64_t address, int lane, bool writes,
                          const char* space) const;

  Block& block_;
  std::vector<Range> last_;  // for each place in the code
  uint64_t version_ = 0;     // of the allocations in last_
  bool checks_races_;
};

}  // namespace fake_cuda
