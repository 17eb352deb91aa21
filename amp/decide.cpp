#include <c10/core/DeviceGuard.h>
#include <lockstep/amp/cuda_kernels.h>
#include <lockstep/amp/decide.h>

namespace lockstep::amp {

void decide_in_place(Decision* decision, const ScalerState* scaler, const DecisionRule& rule,
                     c10::Device device) {
  if (device.is_cuda()) {
    const c10::DeviceGuard on(device);
    decide_on_cuda(decision, scaler, rule);
  } else {
    decide(*decision, *scaler, rule);
  }
}

void conclude_in_place(Decision* decision, ScalerState* scaler, const DecisionRule& rule,
                       c10::Device device) {
  if (device.is_cuda()) {
    const c10::DeviceGuard on(device);
    conclude_on_cuda(decision, scaler, rule);
  } else {
    conclude(*decision, *scaler, rule);
  }
}

}  // namespace lockstep::amp
