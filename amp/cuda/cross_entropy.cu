#include <lockstep/amp/cuda/row_launch.h>
#include <lockstep/amp/cuda/row_team.cuh>

namespace lockstep::amp::cuda {
namespace {

/// The packs of a row, from element `edges.head` on.
__device__ Elements packs_of_row(const Rows& rows, int64_t row, const RowEdges& edges) {
  const int64_t first = row * rows.size + edges.head;
  const int bytes = rows.data.type == Element::fp32 ? 4 : 2;
  return {static_cast<char*>(rows.data.data) + first * bytes, rows.data.type};
}

/// log(sum(e^x)) and the sum of x, for all threads of the block, in one pass over the row.
__device__ RowSums sums_of(const Rows& logits, int64_t row, bool needs_plain) {
  const RowEdges edges = RowEdges::of(logits, logits, row);
  ExponentialSum own;
  for (int64_t i = threadIdx.x; i < edges.alone; i += kRowLanes) {
    const float value[1] = {logits.at(row, edges.alone_at(i))};
    own.add(value);
  }
  const Elements packs = packs_of_row(logits, row, edges);
  for (int64_t pack = threadIdx.x; pack < edges.packs; pack += kRowLanes) {
    float values[kPack];
    load_whole(packs, pack * kPack, values);
    own.add(values);
  }
  const BlockTeam team;
  const float reference = team.joined(own.reference, Larger());
  const float sum = team.joined(own.sum * exp_of(own.reference - reference), Sum());
  return {reference + log_of(sum), needs_plain ? team.joined(own.plain, Sum()) : 0.0F};
}

/// The row's loss, for all threads of the block; 0 for rows that do not count.
__device__ double loss_of(const CrossEntropyWork& work, int64_t row) {
  if (!work.counts(row)) {
    return 0.0;
  }
  const Rows& logits = work.logits;
  const RowSums sums = sums_of(logits, row, work.smoothing != 0.0);
  if (threadIdx.x == 0) {
    work.log_sums[row] = sums.log_sum_exp;
  }
  const int64_t target = work.targets[row];
  if (!work.is_class(target)) {
    return static_cast<double>(NAN);
  }
  return sums.log_sum_exp - (1.0 - work.smoothing) * logits.at(row, target) -
         work.smoothing * (sums.sum / static_cast<float>(logits.size));
}

__global__ void __launch_bounds__(kRowLanes)
    cross_entropy_kernel(CrossEntropyWork work, double* losses) {
  for (int64_t row = blockIdx.x; row < work.logits.rows; row += gridDim.x) {
    const double loss = loss_of(work, row);
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

/// The gradient of a row without the term of the target; 0 in rows that do not count.
struct Slopes {
  float log_sum;
  float factor;
  float rest;
  bool counted;

  __device__ float of(float x) const {
    return counted ? softmax_slope(x, log_sum, factor, rest) : 0.0F;
  }
};

/// `factor`: the gradient of the mean loss over the number of rows that count.
__device__ void write_gradient(const CrossEntropyWork& work, const Rows& gradient, float factor,
                               int64_t row) {
  const Rows& logits = work.logits;
  const bool counted = work.counts(row);
  const int64_t target = work.targets[row];
  const auto classes = static_cast<double>(logits.size);
  const auto hit = static_cast<float>(factor * (1.0 - work.smoothing));
  const Slopes slopes{counted ? work.log_sums[row] : 0.0F, factor,
                      static_cast<float>(work.smoothing / classes), counted};
  const RowEdges edges = RowEdges::of(logits, gradient, row);
  for (int64_t i = threadIdx.x; i < edges.alone; i += kRowLanes) {
    const int64_t at = edges.alone_at(i);
    const float slope = slopes.of(logits.at(row, at));
    gradient.set(row, at, counted && at == target ? slope - hit : slope);
  }
  const Elements from = packs_of_row(logits, row, edges);
  const Elements to = packs_of_row(gradient, row, edges);
  for (int64_t pack = threadIdx.x; pack < edges.packs; pack += kRowLanes) {
    float values[kPack];
    load_whole(from, pack * kPack, values);
    const int64_t before = target - edges.head - pack * kPack;  // elements of the pack
    for (int k = 0; k < kPack; ++k) {
      values[k] = slopes.of(values[k]);
    }
    if (counted && before >= 0 && before < kPack) {
      for (int k = 0; k < kPack; ++k) {
        values[k] = k == before ? values[k] - hit : values[k];
      }
    }
    store_whole(to, pack * kPack, values);
  }
}

__global__ void __launch_bounds__(kRowLanes)
    cross_entropy_backward_kernel(CrossEntropyWork work, Rows gradient, const float* slope,
                                  const double* counted) {
  const auto factor = static_cast<float>(static_cast<double>(*slope) / *counted);
  for (int64_t row = blockIdx.x; row < work.logits.rows; row += gridDim.x) {
    write_gradient(work, gradient, factor, row);
  }
}

}  // namespace

Problem launch_cross_entropy(const CrossEntropyWork& work, double* losses, float* loss,
                             double* counted, void* stream) {
  start(cross_entropy_kernel, one_wave(cross_entropy_kernel, kRowLanes, work.logits.rows),
        kRowLanes, stream, work, losses);
  start(mean_loss_kernel, 1, kThreads, stream, work, losses, loss, counted);
  return last_problem();
}

Problem launch_cross_entropy_backward(const CrossEntropyWork& work, const Rows& gradient,
                                      const float* slope, const double* counted, void* stream) {
  start(cross_entropy_backward_kernel,
        one_wave(cross_entropy_backward_kernel, kRowLanes, gradient.rows), kRowLanes, stream, work,
        gradient, slope, counted);
  return last_problem();
}

}  // namespace lockstep::amp::cuda
