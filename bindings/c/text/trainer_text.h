#pragma once

#include <lockstep/amp/optimizer.h>
#include <lockstep/runtime/trainer_options.h>

#include <memory>
#include <string>

namespace lockstep::c {

/// What a step minimises: a loss of the model's output and the target, or the output itself.
enum class LossKind { mse, l1, cross_entropy, output };

/// The arguments of a Trainer, and the loss.
struct TrainerText {
  TrainerOptions options;
  std::shared_ptr<const OptimizerSpec> optimizer;
  LossKind loss;
};

/// Those of an option text. Throws Error for what set_options() refuses, for a text without a loss,
/// and for options of another optimizer than the chosen one. Trainer checks the values.
TrainerText trainer_text(const std::string& text);

}  // namespace lockstep::c
