#include <lockstep/amp/cuda/row_launch.h>
#include <lockstep/amp/cuda/wide_layers.h>
#include <lockstep/amp/cuda/row_team.cuh>

namespace lockstep::amp::cuda {
namespace {

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
    work.sum_part(dy, parts, parts + gridDim.y * work.x.size, blockIdx.y, gridDim.y, column());
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
    work.backward_part(dx, dy, parts, blockIdx.y, gridDim.y, column());
  }
}

constexpr int kStrips = 16;
constexpr int kStripColumns = 32;

/// A block sums 32 columns: first within each of 16 strips of the parts, then over the strips.
__global__ void __launch_bounds__(kStrips* kStripColumns)
    join_parts_kernel(const float* parts, float* sums, int64_t size, int64_t count) {
  __shared__ float strips[kStrips][kStripColumns];
  const int strip = static_cast<int>(threadIdx.x) / kStripColumns;
  const int lane = static_cast<int>(threadIdx.x) % kStripColumns;
  const int64_t column = blockIdx.x * int64_t{kStripColumns} + lane;
  const float* const own = parts + blockIdx.y * count * size + column;
  float sum = 0.0F;
  for (int64_t part = strip; column < size && part < count; part += kStrips) {
    sum += own[part * size];
  }
  strips[strip][lane] = sum;
  __syncthreads();
  if (strip == 0 && column < size) {
    for (int k = 1; k < kStrips; ++k) {
      sum += strips[k][lane];
    }
    sums[blockIdx.y * size + column] = sum;
  }
}

void join_parts(const float* parts, float* sums, int64_t size, int arrays, int count,
                void* stream) {
  const auto columns = static_cast<unsigned>((size + kStripColumns - 1) / kStripColumns);
  start(join_parts_kernel, {std::max(columns, 1U), static_cast<unsigned>(arrays)},
        kStrips * kStripColumns, stream, parts, sums, size, int64_t{count});
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
  if (in_wide_rows(work, y, y)) {
    start_wide_norm(work, y, stream);
  } else {
    start(norm_kernel, blocks_for_rows(norm_kernel, y), kRowLanes, stream, work, y);
  }
  return last_problem();
}

Problem launch_norm_backward(const NormWork& work, const Rows& dx, const Rows& dy, float* parts,
                             float* sums, void* stream) {
  const int count = row_parts(dx.rows);
  if (in_wide_rows(work, dx, dy)) {
    start_wide_norm_backward(work, dx, dy, parts, stream);
  } else {
    start(norm_backward_kernel, blocks_for_rows(norm_backward_kernel, dx), kRowLanes, stream, work,
          dx, dy);
    if (parts != nullptr) {
      start(norm_parts_kernel, blocks_for_columns(dx.size, count), kRowLanes, stream, work, dy,
            parts);
    }
  }
  if (parts != nullptr) {
    join_parts(parts, sums, dx.size, /*arrays=*/2, count, stream);
  }
  return last_problem();
}

Problem launch_bias_gelu(const BiasGeluWork& work, const Rows& y, void* stream) {
  if (in_packs(work, y, y)) {
    start_wide_bias_gelu(work, y, stream);
  } else {
    start(bias_gelu_kernel, blocks_for_rows(bias_gelu_kernel, y), kRowLanes, stream, work, y);
  }
  return last_problem();
}

Problem launch_bias_gelu_backward(const BiasGeluWork& work, const Rows& dx, const Rows& dy,
                                  float* parts, float* bias_sum, void* stream) {
  const int count = row_parts(dx.rows);
  if (in_packs(work, dx, dy)) {
    start_wide_bias_gelu_backward(work, dx, dy, parts, stream);
  } else {
    start(bias_gelu_backward_kernel, blocks_for_columns(dx.size, count), kRowLanes, stream, work,
          dx, dy, parts);
  }
  join_parts(parts, bias_sum, dx.size, /*arrays=*/1, count, stream);
  return last_problem();
}

}  // namespace lockstep::amp::cuda
