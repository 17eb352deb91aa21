#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <lockstep/bindings/c/calls/losses.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/data/batch.h>

namespace lockstep::c {
namespace {

constexpr int64_t kIgnoredClass = -100;  // LibTorch's

template <typename... Parts>
void check(bool condition, const Parts&... parts) {
  LOCKSTEP_CHECK_CODE(condition, ExitCode::data, parts...);
}

/// LibTorch says "out of bounds" on the host; on a device the process cannot go on.
void check_classes(const at::Tensor& target, int64_t classes) {
  const at::Tensor wrong = target.masked_select(
      target.lt(0).logical_or(target.ge(classes)).logical_and(target.ne(kIgnoredClass)));
  check(wrong.numel() == 0, "cross_entropy: the target has the class number ",
        wrong.numel() == 0 ? 0 : wrong.select(0, 0).item<int64_t>(), ", but the output has ",
        classes, " classes, 0 to ", classes - 1,
        "; if the program counts classes from 1, subtract 1");
}

/// The dtype in which a loss computes: autocast makes 16 bits fp32.
at::ScalarType computed_dtype(const at::Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type()) ? at::kFloat : tensor.scalar_type();
}

void check_dtype(const at::Tensor& output, const at::Tensor& target) {
  check(computed_dtype(output) == computed_dtype(target), "the target has the dtype ",
        target.scalar_type(), ", the output ", output.scalar_type(),
        "; pass the target in the dtype of the model");
}

}  // namespace

at::Tensor loss_of(LossKind kind, const std::vector<at::Tensor>& outputs,
                   const at::Tensor& target) {
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
  if (kind != LossKind::cross_entropy) {
    check(target.sizes() == output.sizes(), "the output has the shape ", output.sizes(),
          ", the target ", target.sizes());
    check_dtype(output, target);
  } else if (target.is_floating_point()) {
    check(target.sizes() == output.sizes(), "cross_entropy: the output has the shape ",
          output.sizes(), ", the target ", target.sizes(),
          "; a target of real numbers has a probability for each class; class numbers are "
          "integers");
    check_dtype(output, target);
  } else {
    check(output.dim() >= 1 && target.dim() == output.dim() - 1,
          "cross_entropy: the output has the shape ", output.sizes(), ", the target ",
          target.sizes(), "; class numbers have all of its dimensions but the second");
    check_classes(target, output.size(output.dim() == 1 ? 0 : 1));
  }
  const at::Tensor there = moved(target, output.device());
  switch (kind) {
    case LossKind::mse:
      return at::mse_loss(output, there);
    case LossKind::l1:
      return at::l1_loss(output, there);
    default:
      return at::cross_entropy_loss(output,
                                    there.is_floating_point() ? there : there.to(at::kLong));
  }
}

}  // namespace lockstep::c
