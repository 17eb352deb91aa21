#pragma once

#include <lockstep/amp/cuda/launch.h>
#include <lockstep/amp/cuda/grid.cuh>

#include <algorithm>

namespace lockstep::amp::cuda {

/// The properties of spans that coefficients depend on; passed to kernels by value.
struct OwnSteps {
  static constexpr int kMost = 128;  // 2 KB
  const double* learning_rates[kMost];
  const int64_t* missed[kMost];
  int count;
};

/// One thread for each span computes the coefficients (two pow() in fp64), so that the threads of
/// the update need not.
template <typename Update>
__global__ void __launch_bounds__(OwnSteps::kMost)
    prepare_kernel(Update update, OwnSteps own, Coefficients<Update>* coefficients,
                   const StepState* state) {
  const auto span = static_cast<int>(threadIdx.x);
  if (!state->skip && span < own.count) {
    const StepState step = own_step(*state, own.learning_rates[span], own.missed[span]);
    coefficients[span] = update.prepare(step, step.gradient_scale());
  }
}

template <typename Update>
Problem launch_prepare(const Update& update, const UpdateArrays* spans, int64_t count,
                       Coefficients<Update>* coefficients, const StepState* state, void* stream) {
  for (int64_t first = 0; first < count; first += OwnSteps::kMost) {
    OwnSteps own = {};
    own.count = static_cast<int>(std::min<int64_t>(count - first, OwnSteps::kMost));
    for (int i = 0; i < own.count; ++i) {
      own.learning_rates[i] = spans[first + i].learning_rate;
      own.missed[i] = spans[first + i].missed;
    }
    start(prepare_kernel<Update>, 1, OwnSteps::kMost, stream, update, own, coefficients + first,
          state);
  }
  return last_problem();
}

}  // namespace lockstep::amp::cuda
