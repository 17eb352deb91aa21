#pragma once

#include <lockstep/amp/optimizer.h>
#include <lockstep/amp/update/random_bits.h>
#include <lockstep/amp/update/update_block.h>

namespace lockstep::amp {

/// The arrays of a span in host memory, read and written block by block as fp32. Arrays that are
/// fp32 are used where they are, the others pass through buffers that fit the L1 cache.
/// Threads: const; any number of threads on different blocks.
class SpanBlocks {
 public:
  static constexpr int64_t kBlock = 1024;        // elements
  static constexpr int64_t kBlocksPerTask = 16;  // below that a thread costs more than it saves

  SpanBlocks(const FlatSpan& span, int64_t update);

  struct Buffers {
    alignas(64) float gradient[kBlock];
    alignas(64) float weight[kBlock];
    alignas(64) float moments[2][kBlock];
  };

  int64_t size() const { return size_; }
  int64_t blocks() const { return (size_ + kBlock - 1) / kBlock; }

  UpdateBlock load(int64_t block, Buffers& buffers) const;
  void store_weight(int64_t block, const UpdateBlock& from) const;
  void store_moments(int64_t block, const UpdateBlock& from) const;
  /// Part of store_weight().
  void move_average(int64_t block, const UpdateBlock& weights) const;

 private:
  struct Array {
    void* data = nullptr;
    c10::ScalarType dtype = c10::ScalarType::Float;
    void* at(int64_t index) const;
    float* as_float(int64_t begin, int64_t size, float* buffer) const;
    void prefetch(int64_t begin, int64_t size) const;
    void store(int64_t begin, int64_t size, const float* from) const;
  };
  static Array array_of(const at::Tensor& tensor);

  int64_t size_;
  Array gradient_;
  Array updated_;
  Array copy_;  // the model's weight beside a master
  Array remainder_;
  float* average_ = nullptr;
  float average_rest_;
  bool rounds_randomly_;
  SpanRandom random_;
  int64_t first_element_;
  int moments_;
  Array moment_[2];
};

}  // namespace lockstep::amp
