#pragma once

#include <torch/arg.h>

#include <cstdint>

namespace lockstep {

/// What to do with a parameter that got no gradient in a synchronising backward.
enum class UnusedParameters {
  error,  // throws Error on every rank, before any update; names the parameters and the rank
  zeros,  // treats the gradient as zero
  // Unused on all ranks: the gradient stays undefined, so the optimizer neither updates the
  // parameter nor counts an update for it. Used on some ranks: the others contribute zeros.
  detect,
};

/// How buffers (for example BatchNorm statistics) are kept equal on all ranks, once per finish().
/// Integer buffers are never averaged; they take rank 0's value.
enum class BufferPolicy { none, broadcast, average };

/// What a BucketOptions::bucket_bytes of 0 stands for, in device memory at least.
constexpr int64_t kHostBucketBytes = 4 << 20;
constexpr int64_t kDeviceBucketBytes = 25 << 20;

struct BucketOptions {
  /// Bytes of gradients, in the wire dtype, in the first bucket. Small, so that the first
  /// collective starts early (DDP's kDefaultFirstBucketBytes).
  TORCH_ARG(int64_t, first_bucket_bytes) = 1 << 20;
  /// Bytes in each later bucket. 0: max(25 MiB, all gradients / 64) in device memory, that is DDP's
  /// 25 MiB up to 1.6 GB of gradients, and 4 MiB on hosts, where a call costs little and a slow
  /// link should not wait for the last bucket of backward. A parameter is never split. A parameter
  /// that fills a bucket by itself starts a new one if the present one is at least half full: a
  /// large embedding, whose gradient comes last, does not hold back the gradients before it.
  TORCH_ARG(int64_t, bucket_bytes) = 0;
};

}  // namespace lockstep
