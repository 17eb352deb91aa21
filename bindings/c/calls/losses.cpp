#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <lockstep/bindings/c/calls/losses.h>
#include <lockstep/collectives/check.h>

namespace lockstep::c {

at::Tensor loss_of(LossKind kind, const std::vector<at::Tensor>& outputs,
                   const at::Tensor& target) {
  const auto check = [](bool condition, const auto&... parts) {
    LOCKSTEP_CHECK_CODE(condition, ExitCode::data, parts...);
  };
  check(outputs.size() == 1, "the model returns ", outputs.size(),
        " tensors; a loss takes one: export a model that returns one, or its loss (loss=output)");
  const at::Tensor& output = outputs.front();
  if (kind == LossKind::output) {
    check(!target.defined(),
          "there is a target, but with loss=output the model computes the loss: "
          "pass the target as an input");
    return output;
  }
  check(target.defined(), "there is no target; only loss=output does without");
  if (kind == LossKind::cross_entropy) {
    const bool holds_classes = !target.is_floating_point();
    check(output.dim() >= 1 && (!holds_classes || target.dim() == output.dim() - 1),
          "cross_entropy: the output has the shape ", output.sizes(), ", the target ",
          target.sizes(), "; class numbers have all of its dimensions but the second");
    return at::cross_entropy_loss(output, holds_classes ? target.to(at::kLong) : target);
  }
  check(target.sizes() == output.sizes(), "the output has the shape ", output.sizes(),
        ", the target ", target.sizes());
  return kind == LossKind::mse ? at::mse_loss(output, target) : at::l1_loss(output, target);
}

}  // namespace lockstep::c
