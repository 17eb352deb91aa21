#include <lockstep/amp/impl/cuda_kernels.h>
#include <lockstep/amp/impl/decision.h>

namespace lockstep::amp {

void decide_in_place(Decision* decision, const ScalerState* scaler, const DecisionRule& rule,
                     c10::Device device) {
  if (device.is_cuda()) {
    decide_on_cuda(decision, scaler, rule, device);
  } else {
    decide(*decision, *scaler, rule);
  }
}

void conclude_in_place(Decision* decision, ScalerState* scaler, const DecisionRule& rule,
                       c10::Device device) {
  if (device.is_cuda()) {
    conclude_on_cuda(decision, scaler, rule, device);
  } else {
    conclude(*decision, *scaler, rule);
  }
}

}  // namespace lockstep::amp
