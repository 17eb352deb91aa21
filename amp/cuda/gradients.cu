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

/// An empty array has the same first chunk as the next array; array_of() finds the latter.
__global__ void __launch_bounds__(kThreads) casts_kernel(CastBatch batch, float factor) {
  for (int chunk = static_cast<int>(blockIdx.x); chunk < batch.chunks;
       chunk += static_cast<int>(gridDim.x)) {
    const CastBatch::Array& array = batch.arrays[batch.array_of(chunk)];
    const Elements to{array.to, array.to_type};
    const Elements from{const_cast<void*>(array.from), array.from_type};
    const int64_t first = (chunk - array.first_chunk) * (kCastChunk / kPack);
    const int64_t packs = packs_of(array.size);
    const int64_t end = first + kCastChunk / kPack < packs ? first + kCastChunk / kPack : packs;
    for (int64_t pack = first + threadIdx.x; pack < end; pack += kThreads) {
      cast_pack(to, from, array.size, factor, pack);
    }
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
    squares_kernel(Elements flat, int64_t size, int64_t packs_each, int first, int blocks_each,
                   double* partial) {
  const int part = first + static_cast<int>(blockIdx.x) / blocks_each;
  const int block = static_cast<int>(blockIdx.x) % blocks_each;
  const int64_t wanted = (part + 1) * packs_each;
  const int64_t packs = packs_of(size) < wanted ? packs_of(size) : wanted;
  double sum = 0.0;
  for (int64_t pack = part * packs_each + block * int64_t{kThreads} + threadIdx.x; pack < packs;
       pack += blocks_each * int64_t{kThreads}) {
    sum += squares_of_pack(flat, size, pack);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    partial[part * blocks_each + block] = sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    totals_kernel(const double* partial, int sums, MeasureTotals* totals) {
  double sum = 0.0;
  for (int i = threadIdx.x; i < sums; i += kThreads) {
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

Problem launch_casts(const CastBatch& batch, float factor, void* stream) {
  if (batch.chunks == 0) {
    return nullptr;
  }
  start(casts_kernel, one_wave(casts_kernel, kThreads, batch.chunks), kThreads, stream, batch,
        factor);
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

int measuring_blocks(const MeasuredParts& parts) {
  constexpr int kBlocks = 512;  // for all parts
  const int64_t wanted = (parts.each / kPack + kThreads - 1) / kThreads;
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, std::max(1, kBlocks / parts.count)));
}

Problem launch_squares(const Elements& flat, int64_t size, const MeasuredParts& parts, int first,
                       int count, double* partial, void* stream) {
  const int blocks = measuring_blocks(parts);
  start(squares_kernel, count * blocks, kThreads, stream, flat, size, parts.each / kPack, first,
        blocks, partial);
  return last_problem();
}

Problem launch_totals(const double* partial, int sums, MeasureTotals* totals, void* stream) {
  start(totals_kernel, 1, kThreads, stream, partial, sums, totals);
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
    cudaGetLastError();  // clears the error for the next launch
    return 0;
  }
  return 10 * major + minor;
}

}  // namespace lockstep::amp::cuda
