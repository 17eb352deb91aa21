#pragma once

#include <lockstep/amp/cuda/row_work.h>
#include <lockstep/amp/cuda/grid.cuh>

namespace lockstep::amp::cuda {

struct Larger {
  __device__ float operator()(float a, float b) const { return larger_of(a, b); }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

constexpr int kWarp = 32;

/// Joins the values of a warp by halves; all lanes get the result.
template <typename Join>
__device__ float joined_lanes(float own, const Join& join) {
  for (int step = 1; step < kWarp; step *= 2) {
    own = join(own, __shfl_xor_sync(~0U, own, step));
  }
  return own;
}

/// The kRowLanes threads of a block. All get the same sums, always added in the same order: over a
/// warp's lanes by halves, then over the warps.
struct BlockTeam {
  __device__ bool first() const { return threadIdx.x == 0; }

  template <typename Body>
  __device__ void each(int64_t size, const Body& body) const {
    for (int64_t i = threadIdx.x; i < size; i += kRowLanes) {
      body(i);
    }
  }
  template <typename Term>
  __device__ float sum(int64_t size, const Term& term) const {
    float own = 0.0F;
    each(size, [&](int64_t i) { own += term(i); });
    return joined(own, Sum());
  }
  template <typename Join>
  __device__ float joined(float own, const Join& join) const {
    __shared__ float warps[kRowLanes / kWarp];
    own = joined_lanes(own, join);
    __syncthreads();  // all threads have read the last result
    if (threadIdx.x % kWarp == 0) {
      warps[threadIdx.x / kWarp] = own;
    }
    __syncthreads();
    float all = warps[0];
    for (int warp = 1; warp < kRowLanes / kWarp; ++warp) {
      all = join(all, warps[warp]);
    }
    return all;
  }
};

}  // namespace lockstep::amp::cuda
