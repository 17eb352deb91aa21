#pragma once

#include <lockstep/runtime/runtime.h>

#include <functional>
#include <string>

#include "doctor/finding.h"

namespace lockstep::doctor {

/// Faults that tests inject into a check of training.
struct TrainingFault {
  /// Called after the last step, with the weights of the model.
  std::function<void(const std::vector<at::Tensor>&)> weights;
  /// The last rank does not plant an inf, or does not throw.
  bool no_inf = false;
  bool no_exception = false;
};

// Each check trains its own small net with a Trainer, for 40 steps. Collective: the same finding on
// every rank.

/// All ranks end with the same weights, and the losses, norms and decisions (clip factor, loss
/// scale, skips) of each step are those of the same steps on the host, within a tolerance.
Finding check_equal_weights(Runtime& runtime, const TrainingFault& fault = {});
/// Captured steps (CUDA graphs) end with the bits of steps without capture.
Finding check_captured_steps(Runtime& runtime);
/// NCCL and the staged transport end with the same weights.
Finding check_transports(Runtime& runtime);
/// An inf in the loss of one rank makes every rank skip that update, and no weight moves.
Finding check_overflow(Runtime& runtime, const TrainingFault& fault = {});
/// An exception in the closure of one rank is an Error on every rank, and training goes on.
Finding check_exception(Runtime& runtime, const TrainingFault& fault = {});
/// The same while the other ranks wait for that rank in a collective of the closure.
Finding check_waiting_peers(Runtime& runtime, const TrainingFault& fault = {});

}  // namespace lockstep::doctor
