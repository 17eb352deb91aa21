#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/bindings/c/text/trainer_text.h>

#include <vector>

namespace lockstep::c {

/// The loss of a model's outputs. `target`: on the host; undefined for LossKind::output. Throws
/// Error (exit code data) unless there is one output, if a target is missing or not expected, if
/// shapes (no broadcasting) or dtypes differ, and for a number that is no class.
at::Tensor loss_of(LossKind kind, const std::vector<at::Tensor>& outputs, const at::Tensor& target);

}  // namespace lockstep::c
