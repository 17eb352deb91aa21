#include <lockstep/amp/cuda/wide_layers.h>
#include <lockstep/amp/cuda/pack_team.cuh>

namespace lockstep::amp::cuda {
namespace {

__device__ float total(const float (&values)[kPack]) {
  float sum = 0.0F;
  for (const float value : values) {
    sum += value;
  }
  return sum;
}

constexpr int kNormPacks = 3;
constexpr int kNormThreads = 352;
static_assert(kNormThreads * kNormPacks * kPack >= kWideSize);

/// One warp processes a row of up to 768 elements.
__global__ void __launch_bounds__(kNormThreads)
    wide_norm_kernel(NormWork work, Rows y, int threads) {
  PackTeam team(threads);
  const auto size = static_cast<int>(work.x.size);  // at most kWideSize
  const auto count = static_cast<float>(size);
  const int64_t step = int64_t{gridDim.x} * team.groups;
  for (int64_t some = blockIdx.x * int64_t{team.groups}; some < work.x.rows; some += step) {
    const int64_t row = some + team.group;
    const bool active = row < work.x.rows;
    RowPacks<kNormPacks> x;
    x.load(work.x.data, row, size, team, active);
    x.widen(work.x.data.type);
    RowNorm norm;
    if (work.centred) {
      float sum = 0.0F;
      for (const auto& pack : x.values) {
        sum += total(pack);
      }
      norm.mean = team.sum(sum) / count;
    }
    float square = 0.0F;
    for (int p = 0; p < kNormPacks; ++p) {
      if (team.column(p) < size) {
        for (const float value : x.values[p]) {
          square += (value - norm.mean) * (value - norm.mean);
        }
      }
    }
    norm.inverse = inverse_deviation(team.sum(square), count, static_cast<float>(work.eps));
    if (active && team.lane == 0) {
      work.norms[row] = norm;
    }
    for (int p = 0; p < kNormPacks; ++p) {
      const int at = team.column(p);
      if (active && at < size) {
        float weight[kPack];
        float bias[kPack];
        load_parameter(work.weight, at, 1.0F, weight);
        load_parameter(work.bias, at, 0.0F, bias);
        for (int k = 0; k < kPack; ++k) {
          const float scaled = normed(x.values[p][k], norm) * weight[k];
          weight[k] = work.bias == nullptr ? scaled : scaled + bias[k];
        }
        store_whole(y.data, row * size + at, weight);
      }
    }
  }
}

constexpr int kNormBackwardPacks = 3;  // of x, of dy, and of two sums over rows
/// The largest number that fits in the registers.
constexpr int kNormBackwardThreads = kMostThreads;
static_assert(kNormBackwardThreads * kNormBackwardPacks * kPack >= kWideSize);

/// A block processes one part of the rows, so that dx and the sums over rows share the reads.
__global__ void __launch_bounds__(kNormBackwardThreads)
    wide_norm_backward_kernel(NormWork work, Rows dx, Rows dy, float* parts, int threads) {
  PackTeam team(threads);
  const auto size = static_cast<int>(work.x.size);  // at most kWideSize
  const auto count = static_cast<float>(size);
  float weight_sums[kNormBackwardPacks][kPack];
  float bias_sums[kNormBackwardPacks][kPack];
  for (int p = 0; p < kNormBackwardPacks; ++p) {
    fill(weight_sums[p], 0.0F);
    fill(bias_sums[p], 0.0F);
  }
  const int64_t last = first_row_of(blockIdx.x + 1, gridDim.x, work.x.rows);
  for (int64_t some = first_row_of(blockIdx.x, gridDim.x, work.x.rows); some < last;
       some += team.groups) {
    const int64_t row = some + team.group;
    const bool active = row < last;
    RowPacks<kNormBackwardPacks> x;
    RowPacks<kNormBackwardPacks> slope;
    x.load(work.x.data, row, size, team, active);
    slope.load(dy.data, row, size, team, active);
    const RowNorm norm{active ? work.norms[row].mean : 0.0F,
                       active ? work.norms[row].inverse : 1.0F};
    x.widen(work.x.data.type);
    slope.widen(dy.data.type);
    float slopes = 0.0F;
    float products = 0.0F;
    for (int p = 0; p < kNormBackwardPacks; ++p) {
      const int at = team.column(p);
      float weight[kPack];
      load_parameter(at < size ? work.weight : nullptr, at, 1.0F, weight);
      for (int k = 0; k < kPack; ++k) {
        float& value = x.values[p][k];
        float& own = slope.values[p][k];
        value = normed(value, norm);
        weight_sums[p][k] += own * value;
        bias_sums[p][k] += own;
        own *= weight[k];
        slopes += own;
        products += own * value;
      }
    }
    const float mean_slope = work.centred ? team.sum(slopes) / count : 0.0F;
    const float mean_product = team.sum(products) / count;
    for (int p = 0; p < kNormBackwardPacks; ++p) {
      const int at = team.column(p);
      if (active && at < size) {
        float result[kPack];
        for (int k = 0; k < kPack; ++k) {
          result[k] =
              norm.inverse * (slope.values[p][k] - mean_slope - x.values[p][k] * mean_product);
        }
        store_whole(dx.data, row * size + at, result);
      }
    }
  }
  if (parts == nullptr) {
    return;
  }
  LOCKSTEP_UNROLL
  for (int p = 0; p < kNormBackwardPacks; ++p) {
    const int at = team.column(p);
    float* const weight_part = parts + int64_t{blockIdx.x} * size + at;
    team.add_groups(weight_sums[p], weight_part, at < size);
    team.add_groups(bias_sums[p], weight_part + int64_t{gridDim.x} * size, at < size);
  }
}

/// The first column of this thread; several blocks side by side process a row.
__device__ int64_t first_column(const PackTeam& team, int threads) {
  return (blockIdx.x * int64_t{threads} + team.lane) * kPack;
}

__global__ void __launch_bounds__(kTeamThreads)
    wide_bias_gelu_kernel(BiasGeluWork work, Rows y, int threads) {
  const PackTeam team(threads);
  const int64_t size = work.x.size;
  const int64_t first = first_column(team, threads);
  if (first >= size) {
    return;
  }
  float bias[kPack];
  load_whole(work.bias + first, bias);
  const int64_t step = int64_t{gridDim.y} * team.groups;
  for (int64_t row = blockIdx.y * int64_t{team.groups} + team.group; row < work.x.rows;
       row += step) {
    float x[kPack];
    load_whole(work.x.data, row * size + first, x);
    for (int k = 0; k < kPack; ++k) {
      x[k] = gelu_of(x[k] + bias[k]);
    }
    store_whole(y.data, row * size + first, x);
  }
}

__global__ void __launch_bounds__(kTeamThreads)
    wide_bias_gelu_backward_kernel(BiasGeluWork work, Rows dx, Rows dy, float* parts, int threads) {
  const PackTeam team(threads);
  const int64_t size = work.x.size;
  const int64_t first = first_column(team, threads);
  const bool has_pack = first < size;
  float bias[kPack];
  load_parameter(has_pack ? work.bias : nullptr, first, 0.0F, bias);
  float sum[kPack];
  fill(sum, 0.0F);
  const int64_t last = has_pack ? first_row_of(blockIdx.y + 1, gridDim.y, work.x.rows) : 0;
  for (int64_t row = first_row_of(blockIdx.y, gridDim.y, work.x.rows) + team.group; row < last;
       row += team.groups) {
    float x[kPack];
    float slope[kPack];
    load_whole(work.x.data, row * size + first, x);
    load_whole(dy.data, row * size + first, slope);
    for (int k = 0; k < kPack; ++k) {
      slope[k] *= gelu_slope(x[k] + bias[k]);
      sum[k] += slope[k];
    }
    store_whole(dx.data, row * size + first, slope);
  }
  team.add_groups(sum, parts + blockIdx.y * size + first, has_pack);
}

/// Blocks side by side of at most kTeamThreads threads, with equal numbers of columns.
struct ColumnShape {
  unsigned blocks;
  TeamShape team;
};

ColumnShape columns_of(int64_t size) {
  const int64_t packs = size / kPack;
  const int64_t blocks = std::max<int64_t>((packs + kTeamThreads - 1) / kTeamThreads, 1);
  return {static_cast<unsigned>(blocks), shape_of((packs + blocks - 1) / blocks, /*each=*/1)};
}

}  // namespace

void start_wide_norm(const NormWork& work, const Rows& y, void* stream) {
  const TeamShape team = shape_of(y.size / kPack, kNormPacks);
  const int64_t wanted = (y.rows + team.groups - 1) / team.groups;
  start(wide_norm_kernel, one_wave(wide_norm_kernel, team.block(), wanted), team.block(), stream,
        work, y, team.threads);
}

void start_wide_norm_backward(const NormWork& work, const Rows& dx, const Rows& dy, float* parts,
                              void* stream) {
  const TeamShape team = shape_of(dx.size / kPack, kNormBackwardPacks, kNormBackwardThreads);
  start(wide_norm_backward_kernel, row_parts(dx.rows), team.block(), stream, work, dx, dy, parts,
        team.threads);
}

void start_wide_bias_gelu(const BiasGeluWork& work, const Rows& y, void* stream) {
  const ColumnShape columns = columns_of(y.size);
  const TeamShape& team = columns.team;
  const int64_t wanted = (y.rows + team.groups - 1) / team.groups * columns.blocks;
  const auto all = static_cast<unsigned>(one_wave(wide_bias_gelu_kernel, team.block(), wanted));
  const dim3 blocks{columns.blocks, std::clamp(all / columns.blocks, 1U, 65535U)};
  start(wide_bias_gelu_kernel, blocks, team.block(), stream, work, y, team.threads);
}

void start_wide_bias_gelu_backward(const BiasGeluWork& work, const Rows& dx, const Rows& dy,
                                   float* parts, void* stream) {
  const ColumnShape columns = columns_of(dx.size);
  const dim3 blocks{columns.blocks, static_cast<unsigned>(row_parts(dx.rows))};
  start(wide_bias_gelu_backward_kernel, blocks, columns.team.block(), stream, work, dx, dy, parts,
        columns.team.threads);
}

}  // namespace lockstep::amp::cuda
