#include <lockstep/amp/cuda/launch.h>
#include <lockstep/amp/cuda/grid.cuh>

namespace lockstep::amp::cuda {
namespace {

/// Nothing is read but the state when the update is skipped.
template <typename Update>
__global__ void __launch_bounds__(kThreads)
    update_kernel(Update update, UpdateArrays arrays, const StepState* state) {
  if (state->skip) {
    return;
  }
  __shared__ typename Update::Prepared shared;
  if (threadIdx.x == 0) {
    shared = update.prepare(*state);
  }
  __syncthreads();
  const typename Update::Prepared prepared = shared;
  const int64_t packs = packs_of(arrays.size);
  for (int64_t pack = first_pack(); pack < packs; pack += pack_stride()) {
    update_pack<Update>(prepared, arrays, pack);
  }
}

template <typename Update>
Problem launch(const Update& update, const UpdateArrays& arrays, const StepState* state,
               void* stream) {
  if (arrays.size == 0) {
    return nullptr;
  }
  update_kernel<Update><<<blocks_for(packs_of(arrays.size)), kThreads, 0, stream_of(stream)>>>(
      update, arrays, state);
  return last_problem();
}

}  // namespace

Problem launch_update(const AdamWUpdate& update, const UpdateArrays& arrays, const StepState* state,
                      void* stream) {
  return launch(update, arrays, state, stream);
}
Problem launch_update(const AdamUpdate& update, const UpdateArrays& arrays, const StepState* state,
                      void* stream) {
  return launch(update, arrays, state, stream);
}
Problem launch_update(const LionUpdate& update, const UpdateArrays& arrays, const StepState* state,
                      void* stream) {
  return launch(update, arrays, state, stream);
}
Problem launch_update(const SgdUpdate& update, const UpdateArrays& arrays, const StepState* state,
                      void* stream) {
  return launch(update, arrays, state, stream);
}
Problem launch_update(const MomentumUpdate& update, const UpdateArrays& arrays,
                      const StepState* state, void* stream) {
  return launch(update, arrays, state, stream);
}

}  // namespace lockstep::amp::cuda
