#pragma once

#include <lockstep/amp/optimizer.h>
#include <lockstep/runtime/trainer_options.h>

#include <memory>
#include <string>

namespace lockstep::c {

/// The quantity to minimise: a loss of the model's output and the target, or the output itself.
enum class LossKind { mse, l1, cross_entropy, output };

/// The arguments of a Trainer, and the loss.
struct TrainerText {
  TrainerOptions options;
  std::shared_ptr<const OptimizerSpec> optimizer;
  LossKind loss;
};

/// Parses an option text. Throws Error as set_options(), for a text without a loss, and for options
/// that the chosen optimizer does not have. The Trainer checks the values.
TrainerText trainer_text(const std::string& text);

}  // namespace lockstep::c
