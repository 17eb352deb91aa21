#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep::benchmarks {

/// Memory that two ranks of one machine share, and a barrier between them that spins: the least
/// with which two cores can sum their buffers.
/// Ranks: MPI is up, its world has two ranks; both construct it. Throws Error if it cannot be made.
class SharedPair {
 public:
  explicit SharedPair(size_t bytes_per_rank);
  ~SharedPair();
  SharedPair(const SharedPair&) = delete;
  SharedPair& operator=(const SharedPair&) = delete;

  int rank() const { return rank_; }
  void* buffer(int rank) const { return memory_ + flags_bytes + rank * bytes_per_rank_; }
  void barrier();

 private:
  static constexpr size_t flags_bytes = 4096;
  std::atomic<uint64_t>& arrivals(int rank) const {
    return *reinterpret_cast<std::atomic<uint64_t>*>(memory_ + rank * 256);
  }

  int rank_ = 0;
  size_t bytes_per_rank_;
  char* memory_ = nullptr;
  uint64_t barriers_ = 0;
};

}  // namespace lockstep::benchmarks
