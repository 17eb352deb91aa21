#include <ATen/ATen.h>
#include <lockstep/amp/impl/flat_kernels.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/step/impl/loss_scales.h>
#include <lockstep/runtime/storage/impl/flat.h>

namespace lockstep::detail {

LossScales::LossScales(int64_t losses, const amp::LossScalerOptions& options, c10::Device device,
                       const amp::LossScaler& unit)
    : unit_(unit) {
  if (losses == 1) {
    return;
  }
  for (int64_t i = 0; i < losses; ++i) {
    scalers_.emplace_back(options, device);
  }
  totals_ = at::zeros({losses, 2}, at::TensorOptions().dtype(at::kDouble).device(device));
  overflows_ = at::zeros({losses}, totals_.options());
}

void LossScales::check(const Loss& loss) const {
  const size_t expected = several() ? scalers_.size() : 1;
  LOCKSTEP_CHECK(loss.parts().size() == expected, "the closure returned ", loss.parts().size(),
                 loss.parts().size() == 1 ? " loss" : " losses", ", TrainerOptions.losses is ",
                 expected, "; return Loss::several({...}) with one tensor for each");
}

void LossScales::begin() {
  if (several()) {
    totals_.zero_();
  }
}

at::Tensor LossScales::to_unit(size_t loss) const {
  return unit_.scale_tensor() / scalers_[loss].scale_tensor();
}

void LossScales::backward(const Loss& loss, Reducer& reducer) {
  const std::vector<at::Tensor>& parts = loss.parts();
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    reducer.take_from(
        [&] { run_backward(scalers_[i].scale(parts[i].reshape({})), /*keep_graph=*/!last); },
        [this, i](const at::Tensor& gradient) { return measured(i, gradient); }, last);
  }
}

/// Measures a gradient of this loss and returns it in the unit, as fp32 or fp64.
at::Tensor LossScales::measured(size_t loss, const at::Tensor& gradient) {
  const at::Tensor wide =
      at::isReducedFloatingType(gradient.scalar_type()) ? gradient.to(at::kFloat) : gradient;
  amp::measure_into(flat_alias(wide, "gradient"), totals_[static_cast<int64_t>(loss)]);
  return wide * to_unit(loss);
}

at::Tensor LossScales::sum_in_unit(const Loss& loss) const {
  if (!several()) {
    return loss.tensor();
  }
  at::Tensor sum;
  for (size_t i = 0; i < scalers_.size(); ++i) {
    const at::Tensor part = loss.parts()[i].reshape({}).to(at::kFloat) / to_unit(i);
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

void LossScales::share(Communicator& devices, const Decisions& decisions) {
  if (!several()) {
    return;
  }
  overflows_.copy_(totals_.select(1, 1));
  devices.all_reduce(overflows_).wait();
  decisions.note_loss_overflow(overflows_.sum());
}

void LossScales::conclude(const Decisions& decisions) {
  for (size_t i = 0; i < scalers_.size(); ++i) {
    const at::Tensor flag = overflows_[static_cast<int64_t>(i)].to(at::kFloat);
    const at::Tensor state = state_bytes(scalers_[i]);
    const at::Tensor before = state.clone();
    scalers_[i].update(flag);
    state.copy_(at::where(decisions.failed() != 0, before, state));
  }
}

}  // namespace lockstep::detail
