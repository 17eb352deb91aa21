// Weights that the program wrote or moved itself, and whether ranks still hold the same.
#include <ATen/ops/equal.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>
#include <lockstep/runtime/training.h>

namespace lockstep {
namespace {

/// `master`: of any dtype; keeps its low bits where `weight` is what it is rounded to.
void take_over(const at::Tensor& master, const at::Tensor& weight, c10::ScalarType rounded) {
  const at::Tensor given = weight.detach().to(master.device(), at::kFloat);
  if (!at::equal(master.to(rounded).to(at::kFloat), given)) {
    master.copy_(given);
  }
}

}  // namespace

void Training::require_whole_model() {
  agreement.raise_if_any(watch->departure());
}

void Training::adopt_weights() {
  steps->settle();
  agreement.attempt([&] { watch->require_adoptable(); });
  std::vector<ReplicatedArray> brought;
  for (const auto* list : {&trainable.parameters, &trainable.frozen}) {
    for (const ModelTensor& entry : *list) {
      brought.push_back({entry.name, entry.tensor.detach()});
    }
  }
  const auto difference = difference_between_ranks(brought, agreement);
  LOCKSTEP_CHECK_CODE(!difference, ExitCode::diverged, "adopt_weights(): ", *difference,
                      ". Nothing was adopted. Give the model the same weights on every rank");
  const c10::AutoGradMode no_grad(false);
  const std::vector<at::Tensor> flats = arena->whole_masters();
  const std::vector<at::Tensor> masters =
      parameter_views(flats, trainable.parameters, reducer->plans());
  for (size_t b = 0; b < reducer->size(); ++b) {
    for (const Slot& slot : reducer->plans()[b].slots) {
      const auto i = static_cast<size_t>(slot.parameter);
      take_over(masters[i], trainable.parameters[i].tensor, reducer->plans()[b].weight_dtype);
    }
  }
  arena->take_masters(flats);
  exact.convert_again();
  watch->bring_back();
  show_ties(model);
}

bool Training::replicas_agree() {
  steps->settle();
  const bool whole = !agreement.any(watch->departure().has_value());
  const amp::ScalerState scaler = steps->scaler().state();
  std::vector<ReplicatedArray> counters = {
      {"the loss scale", at::scalar_tensor(scaler.scale, at::kFloat)},
      {"the number of updates", at::scalar_tensor(steps->updates(), at::kLong)}};
  for (const amp::LossScaler& each : steps->loss_scales().scalers()) {
    counters.push_back({"the scale of a loss", each.scale_tensor()});
  }
  const bool equal = replicas->are_equal(counters);
  return whole && equal;
}

}  // namespace lockstep
