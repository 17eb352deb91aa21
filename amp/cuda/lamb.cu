#include <lockstep/amp/cuda/launch.h>
#include <lockstep/amp/cuda/grid.cuh>
#include <lockstep/amp/cuda/prepare.cuh>

namespace lockstep::amp::cuda {
namespace {

constexpr int kRounds = static_cast<int>(kLambChunk / kPack / kThreads);
static_assert(kRounds * kPack * kThreads == kLambChunk);

/// Updates the moments and writes the sums of each chunk. Threads also process packs beyond the
/// end, whose elements are 0.
__global__ void __launch_bounds__(kThreads)
    lamb_directions(LambBatch batch, LambScratch scratch,
                    const Coefficients<LambUpdate>* coefficients, const StepState* state) {
  if (state->skip) {
    return;
  }
  for (int64_t chunk = blockIdx.x; chunk < batch.chunks(); chunk += gridDim.x) {
    const int span = batch.span_of(chunk);
    const UpdateArrays arrays = batch.spans[span];  // a copy: with a reference stores are scalar
    const LambUpdate::Direction<float> direction = coefficients[span];
    const SpanRandom random = SpanRandom::of(arrays.stream, arrays.step(*state).update);
    const int64_t first = (chunk - batch.first_chunk[span]) * (kLambChunk / kPack) + threadIdx.x;
    LambSums sums;
    for (int round = 0; round < kRounds; ++round) {
      const int64_t pack = first + round * kThreads;
      PackValues values;
      load_values<LambUpdate>(arrays, pack, values);
      lamb_direction_pack(direction, values, sums);
      store_moments<LambUpdate>(arrays, pack, values, random);
    }
    const double weights = block_sum(sums.weights);
    const double directions = block_sum(sums.directions);
    if (threadIdx.x == 0) {
      scratch.sums[chunk] = {weights, directions};
    }
  }
}

/// One block for each span: the sums of its chunks give the trust ratio.
__global__ void __launch_bounds__(kThreads)
    lamb_trust(LambUpdate update, LambBatch batch, LambScratch scratch,
               const Coefficients<LambUpdate>* coefficients, const StepState* state) {
  if (state->skip) {
    return;
  }
  const int span = static_cast<int>(blockIdx.x);
  LambSums sums;
  for (int64_t chunk = batch.first_chunk[span] + threadIdx.x; chunk < batch.first_chunk[span + 1];
       chunk += kThreads) {
    sums.weights += scratch.sums[chunk].weights;
    sums.directions += scratch.sums[chunk].directions;
  }
  const double weights = block_sum(sums.weights);
  const double directions = block_sum(sums.directions);
  if (threadIdx.x == 0) {
    scratch.moves[span] = update.prepare_move(coefficients[span], batch.spans[span].step(*state),
                                              weights, directions);
  }
}

__global__ void __launch_bounds__(kThreads)
    lamb_weights(LambBatch batch, LambScratch scratch, const StepState* state) {
  if (state->skip) {
    return;
  }
  for (int64_t chunk = blockIdx.x; chunk < batch.chunks(); chunk += gridDim.x) {
    const int span = batch.span_of(chunk);
    const UpdateArrays arrays = batch.spans[span];  // a copy: with a reference stores are scalar
    const RandomBits random = SpanRandom::of(arrays.stream, arrays.step(*state).update).weight;
    const LambUpdate::Move<float> move = scratch.moves[span];
    const int64_t first = (chunk - batch.first_chunk[span]) * (kLambChunk / kPack) + threadIdx.x;
    for (int round = 0; round < kRounds; ++round) {
      const int64_t pack = first + round * kThreads;
      PackValues values;
      load_values<LambUpdate>(arrays, pack, values);
      compute_pack<LambUpdate>(move, values);
      store_weight(arrays, pack, values.weight, random);
    }
  }
}

}  // namespace

template Problem launch_prepare(const LambUpdate&, const UpdateArrays*, int64_t,
                                Coefficients<LambUpdate>*, const StepState*, void*);

Problem launch_lamb(const LambUpdate& update, const LambBatch& batch, const LambScratch& scratch,
                    const Coefficients<LambUpdate>* coefficients, const StepState* state,
                    void* stream) {
  if (batch.chunks() == 0) {
    return nullptr;
  }
  start(lamb_directions, one_wave(lamb_directions, kThreads, batch.chunks()), kThreads, stream,
        batch, scratch, coefficients, state);
  start(lamb_trust, batch.count, kThreads, stream, update, batch, scratch, coefficients, state);
  start(lamb_weights, one_wave(lamb_weights, kThreads, batch.chunks()), kThreads, stream, batch,
        scratch, state);
  return last_problem();
}

}  // namespace lockstep::amp::cuda
