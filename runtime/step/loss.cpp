#include <ATen/TensorOperators.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/plain_tensor.h>
#include <lockstep/runtime/loss.h>

#include <cmath>
#include <cstring>

namespace lockstep {

Loss Loss::sum(at::Tensor total, double weight) {
  LOCKSTEP_CHECK(std::isfinite(weight) && weight >= 0.0,
                 "Loss::sum: weight must be finite and not negative, is ", weight);
  Loss loss(std::move(total));
  loss.is_sum_ = true;
  loss.weight_ = weight;
  return loss;
}

Loss Loss::several(std::vector<at::Tensor> means) {
  LOCKSTEP_CHECK(!means.empty(), "Loss::several: there is no loss");
  at::Tensor sum;
  for (size_t i = 0; i < means.size(); ++i) {
    const at::Tensor& mean = means[i];
    try {
      require_scalar_with_grad(mean);
    } catch (const Error& error) {
      throw Error(c10::str("loss ", i, " of ", means.size(), ", counted from 0: ", error.what()));
    }
    const at::Tensor scalar = mean.reshape({});
    const at::Tensor wide = scalar.scalar_type() == at::kDouble ? scalar : scalar.to(at::kFloat);
    sum = sum.defined() ? sum + wide : wide;
  }
  Loss loss(std::move(sum));
  loss.parts_ = std::move(means);
  return loss;
}

void require_scalar_with_grad(const at::Tensor& loss) {
  LOCKSTEP_CHECK(loss.defined(), "the closure returned an undefined loss");
  const std::string why = detail::why_not_plain(loss);
  LOCKSTEP_CHECK(why.empty(), "the loss ", why);
  LOCKSTEP_CHECK(loss.numel() == 1, "the loss must have one element, has sizes ", loss.sizes(),
                 "; reduce it with mean(), or use Loss::sum(total, weight)");
  LOCKSTEP_CHECK(loss.is_floating_point(), "the loss must be floating point, is ",
                 loss.scalar_type());
  LOCKSTEP_CHECK(loss.requires_grad(),
                 "the loss does not depend on a trainable parameter: it was computed under "
                 "no_grad or InferenceMode, detached, or from frozen parameters only");
}

void run_backward(const at::Tensor& loss, bool keep_graph) {
  try {
    loss.backward(/*gradient=*/{}, keep_graph);
  } catch (const std::exception& error) {
    if (std::strstr(error.what(), "backward through the graph a second time") == nullptr) {
      throw;
    }
    throw Error(
        "the graph of this loss is gone: the loss was given to a backward before, or to another "
        "Trainer. If it trains one model, compute the loss anew in each step(). If one loss is to "
        "train two models, make one Trainer over both: a module that registers both, and an "
        "optimizer with a group for each (SGD(0.1).group(...))");
  }
}

}  // namespace lockstep
