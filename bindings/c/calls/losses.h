#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/bindings/c/text/trainer_text.h>

#include <vector>

namespace lockstep::c {

/// The loss of what a model returned. `target`: undefined for LossKind::output. Throws Error (exit
/// code data) if there is not one output, if a target is missing or one too many, and for shapes
/// that do not fit: no broadcasting.
at::Tensor loss_of(LossKind kind, const std::vector<at::Tensor>& outputs, const at::Tensor& target);

}  // namespace lockstep::c
