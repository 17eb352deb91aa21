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

}  // namespace lockstep
