#include <lockstep/amp/cuda/row_launch.h>
#include <lockstep/amp/cuda/grid.cuh>

namespace lockstep::amp::cuda {
namespace {

struct Larger {
  __device__ float operator()(float a, float b) const { return b > a ? b : a; }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

/// The kRowLanes threads of a block. What they sum is the same in all of them, always in the same
/// order: over a warp's lanes by halves, then over the warps.
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
  template <typename Term>
  __device__ float max(int64_t size, const Term& term) const {
    float own = term(threadIdx.x < size ? threadIdx.x : 0);
    each(size, [&](int64_t i) { own = Larger()(own, term(i)); });
    return joined(own, Larger());
  }

 private:
  template <typename Join>
  __device__ float joined(float own, const Join& join) const {
    constexpr int kWarp = 32;
    __shared__ float warps[kRowLanes / kWarp];
    for (int step = 1; step < kWarp; step *= 2) {
      own = join(own, __shfl_xor_sync(~0U, own, step));
    }
    __syncthreads();  // the last call's result has been read
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

__global__ void __launch_bounds__(kRowLanes) norm_kernel(NormWork work, Rows y) {
  for (int64_t row = blockIdx.x; row < work.x.rows; row += gridDim.x) {
    work.forward(BlockTeam(), y, row);
  }
}

__global__ void __launch_bounds__(kRowLanes) norm_backward_kernel(NormWork work, Rows dx, Rows dy) {
  for (int64_t row = blockIdx.x; row < work.x.rows; row += gridDim.x) {
    work.backward(BlockTeam(), dx, dy, row);
  }
}

__device__ int64_t column() {
  return blockIdx.x * int64_t{kRowLanes} + threadIdx.x;
}

__global__ void __launch_bounds__(kRowLanes)
    norm_parts_kernel(NormWork work, Rows dy, float* parts) {
  if (column() < work.x.size) {
    work.sum_part(dy, parts, parts + kRowParts * work.x.size, blockIdx.y, column());
  }
}

__global__ void __launch_bounds__(kRowLanes)
    join_parts_kernel(const float* parts, float* sums, int64_t size) {
  if (column() < size) {
    const int64_t first = blockIdx.y * size;
    sums[first + column()] = sum_of_parts(parts + first * kRowParts, size, column());
  }
}

__global__ void __launch_bounds__(kRowLanes) bias_gelu_kernel(BiasGeluWork work, Rows y) {
  for (int64_t row = blockIdx.x; row < work.x.rows; row += gridDim.x) {
    work.forward(BlockTeam(), y, row);
  }
}

__global__ void __launch_bounds__(kRowLanes)
    bias_gelu_backward_kernel(BiasGeluWork work, Rows dx, Rows dy, float* parts) {
  if (column() < work.x.size) {
    work.backward_part(dx, dy, parts, blockIdx.y, column());
  }
}

__global__ void __launch_bounds__(kRowLanes)
    cross_entropy_kernel(CrossEntropyWork work, double* losses) {
  for (int64_t row = blockIdx.x; row < work.logits.rows; row += gridDim.x) {
    const double loss = work.forward(BlockTeam(), row);
    if (threadIdx.x == 0) {
      losses[row] = loss;
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    mean_loss_kernel(CrossEntropyWork work, const double* losses, float* loss, double* counted) {
  double sum = 0.0;
  double rows = 0.0;
  for (int64_t row = threadIdx.x; row < work.logits.rows; row += kThreads) {
    sum += losses[row];
    rows += work.counts(row) ? 1.0 : 0.0;
  }
  sum = block_sum(sum);
  rows = block_sum(rows);
  if (threadIdx.x == 0) {
    *loss = static_cast<float>(sum / rows);
    *counted = rows;
  }
}

__global__ void __launch_bounds__(kRowLanes)
    cross_entropy_backward_kernel(CrossEntropyWork work, Rows gradient, const float* slope,
                                  const double* counted) {
  const auto factor = static_cast<float>(static_cast<double>(*slope) / *counted);
  for (int64_t row = blockIdx.x; row < work.logits.rows; row += gridDim.x) {
    work.backward(BlockTeam(), gradient, factor, row);
  }
}

template <typename... Parameters>
int blocks_for_rows(void (*kernel)(Parameters...), const Rows& rows) {
  return one_wave(kernel, kRowLanes, rows.rows);
}

dim3 blocks_for_columns(int64_t size, int layers) {
  const int64_t blocks = std::max<int64_t>((size + kRowLanes - 1) / kRowLanes, 1);
  return {static_cast<unsigned>(blocks), static_cast<unsigned>(layers)};
}

}  // namespace

Problem launch_norm(const NormWork& work, const Rows& y, void* stream) {
  start(norm_kernel, blocks_for_rows(norm_kernel, y), kRowLanes, stream, work, y);
  return last_problem();
}

Problem launch_norm_backward(const NormWork& work, const Rows& dx, const Rows& dy, void* stream) {
  start(norm_backward_kernel, blocks_for_rows(norm_backward_kernel, dx), kRowLanes, stream, work,
        dx, dy);
  return last_problem();
}

Problem launch_norm_sums(const NormWork& work, const Rows& dy, float* parts, float* sums,
                         void* stream) {
  const int64_t size = dy.size;
  start(norm_parts_kernel, blocks_for_columns(size, kRowParts), kRowLanes, stream, work, dy, parts);
  start(join_parts_kernel, blocks_for_columns(size, 2), kRowLanes, stream, parts, sums, size);
  return last_problem();
}

Problem launch_bias_gelu(const BiasGeluWork& work, const Rows& y, void* stream) {
  start(bias_gelu_kernel, blocks_for_rows(bias_gelu_kernel, y), kRowLanes, stream, work, y);
  return last_problem();
}

Problem launch_bias_gelu_backward(const BiasGeluWork& work, const Rows& dx, const Rows& dy,
                                  float* parts, float* bias_sum, void* stream) {
  const int64_t size = dx.size;
  start(bias_gelu_backward_kernel, blocks_for_columns(size, kRowParts), kRowLanes, stream, work, dx,
        dy, parts);
  start(join_parts_kernel, blocks_for_columns(size, 1), kRowLanes, stream, parts, bias_sum, size);
  return last_problem();
}

Problem launch_cross_entropy(const CrossEntropyWork& work, double* losses, float* loss,
                             double* counted, void* stream) {
  start(cross_entropy_kernel, blocks_for_rows(cross_entropy_kernel, work.logits), kRowLanes, stream,
        work, losses);
  start(mean_loss_kernel, 1, kThreads, stream, work, losses, loss, counted);
  return last_problem();
}

Problem launch_cross_entropy_backward(const CrossEntropyWork& work, const Rows& gradient,
                                      const float* slope, const double* counted, void* stream) {
  start(cross_entropy_backward_kernel, blocks_for_rows(cross_entropy_backward_kernel, gradient),
        kRowLanes, stream, work, gradient, slope, counted);
  return last_problem();
}

}  // namespace lockstep::amp::cuda
