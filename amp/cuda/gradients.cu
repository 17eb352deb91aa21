#include <lockstep/amp/cuda/launch.h>
#include <lockstep/amp/cuda/grid.cuh>

namespace lockstep::amp::cuda {
namespace {

__global__ void __launch_bounds__(kThreads)
    cast_kernel(Elements to, Elements from, int64_t size, float factor) {
  const int64_t packs = packs_of(size);
  for (int64_t pack = first_pack(); pack < packs; pack += pack_stride()) {
    cast_pack(to, from, size, factor, pack);
  }
}

__global__ void __launch_bounds__(kThreads)
    feedback_kernel(Elements wire, Elements gradient, Residuals residuals, int64_t size,
                    float factor, const FeedbackState* state) {
  const FeedbackState fed = *state;
  const int64_t packs = packs_of(size);
  for (int64_t pack = first_pack(); pack < packs; pack += pack_stride()) {
    feedback_pack(wire, gradient, residuals, size, factor, fed, pack);
  }
}

__global__ void __launch_bounds__(kThreads)
    accumulate_kernel(Elements sum, Elements from, int64_t size) {
  const int64_t packs = packs_of(size);
  for (int64_t pack = first_pack(); pack < packs; pack += pack_stride()) {
    accumulate_pack(sum, from, size, pack);
  }
}

__global__ void __launch_bounds__(kThreads)
    squares_kernel(Elements flat, int64_t size, double* partial) {
  double sum = 0.0;
  const int64_t packs = packs_of(size);
  for (int64_t pack = first_pack(); pack < packs; pack += pack_stride()) {
    sum += squares_of_pack(flat, size, pack);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    totals_kernel(const double* partial, int blocks, MeasureTotals* totals) {
  double sum = 0.0;
  for (int i = threadIdx.x; i < blocks; i += kThreads) {
    sum += partial[i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    add_bucket(*totals, sum);
  }
}

__global__ void advance_kernel(ScalerState* state, ScalerRule rule, const float* overflow) {
  advance(*state, rule, !(*overflow == 0.0F));
}

}  // namespace

Problem launch_cast(const Elements& to, const Elements& from, int64_t size, float factor,
                    void* stream) {
  if (size == 0) {
    return nullptr;
  }
  start(cast_kernel, blocks_for(cast_kernel, packs_of(size)), kThreads, stream, to, from, size,
        factor);
  return last_problem();
}

Problem launch_feedback(const Elements& wire, const Elements& gradient, const Residuals& residuals,
                        int64_t size, float factor, const FeedbackState* state, void* stream) {
  if (size == 0) {
    return nullptr;
  }
  start(feedback_kernel, blocks_for(feedback_kernel, packs_of(size)), kThreads, stream, wire,
        gradient, residuals, size, factor, state);
  return last_problem();
}

Problem launch_accumulate(const Elements& sum, const Elements& from, int64_t size, void* stream) {
  if (size == 0) {
    return nullptr;
  }
  start(accumulate_kernel, blocks_for(accumulate_kernel, packs_of(size)), kThreads, stream, sum,
        from, size);
  return last_problem();
}

/// The number of blocks follows from the size alone, so that the bits do not depend on the device.
Problem launch_measure(const Elements& flat, int64_t size, double* partial, MeasureTotals* totals,
                       void* stream) {
  const int64_t wanted = (packs_of(size) + kThreads - 1) / kThreads;
  const auto blocks = static_cast<int>(std::clamp<int64_t>(wanted, 1, kMeasureBlocks));
  start(squares_kernel, blocks, kThreads, stream, flat, size, partial);
  start(totals_kernel, 1, kThreads, stream, partial, blocks, totals);
  return last_problem();
}

Problem launch_advance(ScalerState* state, const ScalerRule& rule, const float* overflow,
                       void* stream) {
  start(advance_kernel, 1, 1, stream, state, rule, overflow);
  return last_problem();
}

int capability(int device) {
  int major = 0;
  int minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
    cudaGetLastError();  // is not left to the next launch
    return 0;
  }
  return 10 * major + minor;
}

}  // namespace lockstep::amp::cuda
