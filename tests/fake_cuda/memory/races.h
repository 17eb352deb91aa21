#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

/// Finds two accesses of one place that no event orders, by vector clocks.
namespace fake_cuda {

/// What happened before: for each lane (a stream, a node of a graph's launch, or the host) the number
/// of its pieces of work.
class Clock {
 public:
  void join(const Clock& other);
  void set(uint32_t lane, uint64_t number) { numbers_[lane] = number; }
  bool knows(uint32_t lane, uint64_t number) const;

 private:
  std::map<uint32_t, uint64_t> numbers_;
};

/// Who accesses memory: one piece of work.
struct Actor {
  uint32_t lane = 0;
  uint64_t number = 0;
  const Clock* before = nullptr;  // what is ordered before this piece
  const char* what = "";          // lives as long as the process
};

/// Whether FAKE_CUDA_RACES=1.
bool races_are_checked();
/// Prints the first 20 races that it finds: both pieces of work, both lanes, the address, the
/// allocation. Threads: the device's thread and threads of the program.
void check_access(const Actor& actor, const void* memory, size_t bytes, bool writes);
/// The memory is given back or new: earlier accesses no longer count.
void forget_accesses(const void* memory, size_t bytes);
/// The number of races so far.
long races_found();

}  // namespace fake_cuda
