#include <lockstep/amp/cuda/launch.h>
#include <lockstep/amp/cuda/grid.cuh>

namespace lockstep::amp::cuda {
namespace {

__global__ void decide_kernel(Decision* decision, const ScalerState* scaler, DecisionRule rule) {
  decide(*decision, *scaler, rule);
}

__global__ void conclude_kernel(Decision* decision, ScalerState* scaler, DecisionRule rule) {
  conclude(*decision, *scaler, rule);
}

}  // namespace

Problem launch_decide(Decision* decision, const ScalerState* scaler, const DecisionRule& rule,
                      void* stream) {
  start(decide_kernel, 1, 1, stream, decision, scaler, rule);
  return last_problem();
}

Problem launch_conclude(Decision* decision, ScalerState* scaler, const DecisionRule& rule,
                        void* stream) {
  start(conclude_kernel, 1, 1, stream, decision, scaler, rule);
  return last_problem();
}

}  // namespace lockstep::amp::cuda
