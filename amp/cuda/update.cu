#include <lockstep/amp/cuda/launch.h>
#include <lockstep/amp/impl/optimizer_list.h>
#include <lockstep/amp/cuda/grid.cuh>
#include <lockstep/amp/cuda/prepare.cuh>

namespace lockstep::amp::cuda {
namespace {

/// If the update is skipped, only the state is read.
template <typename Update>
__global__ void __launch_bounds__(kThreads)
    update_kernel(UpdateArrays arrays, const Coefficients<Update>* coefficients,
                  const StepState* state) {
  if (state->skip) {
    return;
  }
  __shared__ Coefficients<Update> shared;
  if (threadIdx.x == 0) {
    shared = *coefficients;
  }
  __syncthreads();
  const Coefficients<Update> prepared = shared;
  const int64_t packs = packs_of(arrays.size);
  for (int64_t pack = first_pack(); pack < packs; pack += pack_stride()) {
    update_pack<Update>(prepared, arrays, pack);
  }
}

template <typename Update>
__global__ void __launch_bounds__(kThreads)
    narrow_update_kernel(UpdateArrays arrays, const Coefficients<Update>* coefficients,
                         const StepState* state) {
  if (state->skip) {
    return;
  }
  __shared__ Coefficients<Update> prepared;
  if (threadIdx.x == 0) {
    prepared = *coefficients;
  }
  __syncthreads();
  const SpanRandom random = SpanRandom::of(arrays.stream, arrays.step(*state).update);
  const int64_t packs = packs_of(arrays.size);
  for (int64_t pack = first_pack(); pack < packs; pack += pack_stride()) {
    update_narrow_pack<Update>(prepared, arrays, random, pack);
  }
}

__global__ void __launch_bounds__(kThreads)
    average_kernel(UpdateArrays arrays, const StepState* state) {
  if (state->skip) {
    return;
  }
  const int64_t packs = packs_of(arrays.size);
  for (int64_t pack = first_pack(); pack < packs; pack += pack_stride()) {
    float weight[kPack];
    load_weight(arrays, pack, weight);
    move_average_pack(arrays, pack, weight);
  }
}

}  // namespace

template <typename Update>
Problem launch_update(const UpdateArrays& arrays, const Coefficients<Update>* coefficients,
                      const StepState* state, void* stream) {
  if (arrays.size == 0) {
    return nullptr;
  }
  const auto kernel = arrays.narrow() ? narrow_update_kernel<Update> : update_kernel<Update>;
  start(kernel, blocks_for(kernel, packs_of(arrays.size)), kThreads, stream, arrays, coefficients,
        state);
  return last_problem();
}

#define LOCKSTEP_INSTANTIATE(Update)                                                       \
  template Problem launch_prepare(const Update&, const UpdateArrays*, int64_t,             \
                                  Coefficients<Update>*, const StepState*, void*);         \
  template Problem launch_update<Update>(const UpdateArrays&, const Coefficients<Update>*, \
                                         const StepState*, void*);
LOCKSTEP_FOR_EACH_UPDATE(LOCKSTEP_INSTANTIATE)

Problem launch_average(const UpdateArrays& arrays, const StepState* state, void* stream) {
  if (arrays.size == 0) {
    return nullptr;
  }
  start(average_kernel, blocks_for(average_kernel, packs_of(arrays.size)), kThreads, stream, arrays,
        state);
  return last_problem();
}

}  // namespace lockstep::amp::cuda
