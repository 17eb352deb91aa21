#include <ATen/ops/_to_copy.h>
#include <ATen/ops/add.h>
#include <lockstep/runtime/step/forward_backward.h>
#include <lockstep/runtime/step/span.h>

namespace lockstep::detail {

ForwardBackward::ForwardBackward(const TrainerOptions& options, c10::Device device,
                                 amp::LossScaler& scaler,
                                 const std::vector<ModelTensor>& parameters)
    : precision_(options.precision()),
      device_(device),
      accumulate_(options.accumulate()),
      scaler_(scaler),
      scales_(options.losses(), scaler.options(), device, scaler) {
  for (const ModelTensor& parameter : parameters) {
    weights_.insert(parameter.tensor.unsafeGetTensorImpl());
  }
}

void ForwardBackward::share_casts() {
  if (precision_.autocast() && !weight_casts_.has_value()) {
    weight_casts_.emplace(weights_);
  }
}

/// Keeps a copy of the loss, so that what the caller does to the tensor later changes no report.
Loss ForwardBackward::forward(const std::function<Loss()>& closure, bool under_autocast) {
  const Span span(kForward);
  Loss loss = under_autocast ? this->under_autocast(closure) : closure();
  require_scalar_with_grad(loss.tensor());
  scales_.check(loss);
  last_loss_ = at::_to_copy(loss.tensor().detach().reshape({}), at::kDouble);
  loss_sum_ = loss_sum_.defined() ? at::add(loss_sum_, last_loss_) : last_loss_;
  if (loss.is_sum() && loss.weight() > 0) {
    last_loss_ = last_loss_.clone();
    last_loss_.div_(loss.weight());
  }
  return loss;
}

amp::Autocast ForwardBackward::autocast() const {
  return {device_.type(), precision_.compute_dtype(), precision_.autocast()};
}

Loss ForwardBackward::under_autocast(const std::function<Loss()>& closure) const {
  const amp::Autocast region = autocast();
  return closure();
}

void ForwardBackward::backward(const Loss& loss, Reducer& reducer) {
  const Span span(kBackward);
  if (scales_.several()) {
    scales_.backward(loss, reducer);
    return;
  }
  reducer.take_from([&] { run_backward(scaler_.scale(loss.tensor().reshape({}))); });
}

void ForwardBackward::replay(const std::function<Loss()>& closure, NonFiniteDiagnosis& diagnosis,
                             int64_t micro_batch) {
  diagnosis.replay([&] { return scales_.sum_in_unit(under_autocast(closure)); }, scaler_.value(),
                   1.0 / static_cast<double>(accumulate_), micro_batch);
}

const amp::LossScaler& ForwardBackward::scaler_of(int64_t loss) const {
  const auto losses = static_cast<int64_t>(scales_.several() ? scales_.scalers().size() : 1);
  LOCKSTEP_CHECK(loss >= 0 && loss < losses, "there is no loss ", loss,
                 ": TrainerOptions.losses is ", losses);
  return scales_.several() ? scales_.scalers()[static_cast<size_t>(loss)] : scaler_;
}

void ForwardBackward::end_window() {
  scales_.begin();
  loss_sum_ = at::Tensor();
  drop_casts();
}

}  // namespace lockstep::detail
