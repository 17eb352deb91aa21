#include <lockstep/collectives/error.h>
#include <lockstep/runtime/loss.h>

#include <cmath>

namespace lockstep {

Loss Loss::sum(at::Tensor total, double weight) {
  LOCKSTEP_CHECK(std::isfinite(weight) && weight >= 0.0,
                 "Loss::sum: weight must be finite and not negative, is ", weight);
  Loss loss(std::move(total));
  loss.is_sum_ = true;
  loss.weight_ = weight;
  return loss;
}

void require_scalar_with_grad(const at::Tensor& loss) {
  LOCKSTEP_CHECK(loss.defined(), "the closure returned an undefined loss");
  LOCKSTEP_CHECK(loss.numel() == 1, "the loss must have one element, has sizes ", loss.sizes(),
                 "; reduce it with mean(), or use Loss::sum(total, weight)");
  LOCKSTEP_CHECK(loss.is_floating_point(), "the loss must be floating point, is ",
                 loss.scalar_type());
  LOCKSTEP_CHECK(loss.requires_grad(),
                 "the loss does not depend on a trainable parameter: it was computed under "
                 "no_grad, detached, or from frozen parameters only");
}

}  // namespace lockstep
