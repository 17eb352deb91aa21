#pragma once

#include <ATen/Parallel.h>
#include <lockstep/amp/impl/random_bits.h>
#include <lockstep/amp/impl/span_arrays.h>
#include <lockstep/amp/update/update_block.h>

#include <cstdint>

namespace lockstep::amp {

/// The arrays of a span in host memory, read and written block by block as T. Arrays of type T are
/// used in place, others pass through buffers that fit the L1 cache.
/// Threads: const; any number of threads on different blocks.
template <typename T>
class SpanBlocks {
 public:
  static constexpr int64_t kBlock = 1024;        // elements
  static constexpr int64_t kBlocksPerTask = 16;  // with fewer a thread costs more than it saves

  SpanBlocks(const SpanArrays<T>& arrays, int64_t update)
      : arrays_(arrays), random_(SpanRandom::of(arrays.stream, update)) {}

  int64_t count() const { return (arrays_.size + kBlock - 1) / kBlock; }

  /// Calls body(index of the block, UpdateBlock<T>) on all blocks, from many threads.
  template <typename Body>
  void for_each(const Body& body) const {
    at::parallel_for(0, count(), kBlocksPerTask, [&](int64_t begin, int64_t end) {
      Buffers buffers;
      for (int64_t i = begin; i < end; ++i) {
        body(i, load(i, buffers));
      }
    });
  }

  void store_weight(int64_t block, const UpdateBlock<T>& from) const;
  void store_moments(int64_t block, const UpdateBlock<T>& from) const;
  /// Part of store_weight().
  void move_average(int64_t block, const UpdateBlock<T>& weights) const;

 private:
  struct Buffers {
    alignas(64) T gradient[kBlock];
    alignas(64) T weight[kBlock];
    alignas(64) T moments[2][kBlock];
  };
  UpdateBlock<T> load(int64_t block, Buffers& buffers) const;

  SpanArrays<T> arrays_;
  SpanRandom random_;
};

}  // namespace lockstep::amp
