#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace fake_cuda {

/// What happened before: for each lane (a stream, a node of a graph's launch, or the host) the
/// number of its pieces of work.
class Clock {
 public:
  void join(const Clock& other);
  /// Never lowers what the clock knows.
  void set(uint32_t lane, uint64_t number);
  bool knows(uint32_t lane, uint64_t number) const;

 private:
  std::vector<std::pair<uint32_t, uint64_t>> numbers_;  // sorted by lane
};

}  // namespace fake_cuda
