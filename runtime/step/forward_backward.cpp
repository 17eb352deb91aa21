#include <ATen/ops/_to_copy.h>
#include <ATen/ops/add.h>
#include <c10/util/ScopeExit.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/as_error.h>
#include <lockstep/runtime/step/impl/forward_backward.h>
#include <lockstep/runtime/step/impl/span.h>
#include <lockstep/runtime/storage/impl/versions.h>

#include <exception>
#include <string>

namespace lockstep::detail {
namespace {

/// Calls the closure of a program. If a 16-bit kernel is missing, the Error says what to do.
Loss explained(const std::function<Loss()>& closure) {
  try {
    return closure();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (text.find("not implemented for 'BFloat16'") == std::string::npos &&
        text.find("not implemented for 'Half'") == std::string::npos) {
      throw;
    }
    throw Error(
        text +
        "\nThis operator of LibTorch has no kernel for 16 bits. Compute its layer in fp32: keep "
        "the weights with Precision::keep_fp32(name), and call it with fp32 inputs while `const "
        "lockstep::amp::Autocast off(device, dtype, /*enabled=*/false)` lives; or train with "
        "Precision::O0(). LibTorch's MultiheadAttention and Transformer layers have this operator "
        "where they get a key_padding_mask: scaled_dot_product_attention takes masks in 16 bits");
  }
}

}  // namespace

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
  const StepSpan span(kForward);
  Loss loss = under_autocast ? explained([&] { return this->under_autocast(closure); }) : closure();
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

Loss ForwardBackward::under_autocast(const std::function<Loss()>& closure) {
  const amp::Autocast region = autocast();
  const auto end = c10::make_scope_exit([this] { in_closure_ = false; });
  in_closure_ = true;
  return norm_notice_ ? std::exchange(norm_notice_, std::nullopt)->observe(closure) : closure();
}

void ForwardBackward::backward(const Loss& loss, Reducer& reducer) {
  const StepSpan span(kBackward);
  const auto end = c10::make_scope_exit([this] { in_closure_ = false; });
  in_closure_ = true;  // gradient hooks count as closure
  try {
    run(loss, reducer);
  } catch (const CommunicationError&) {
    throw;
  } catch (...) {
    const Error error = as_error(std::current_exception());
    if (error.code() != ExitCode::usage || !is_partly_older_than_writes(loss.tensor())) {
      throw;
    }
    throw Error(c10::str(
        "a part of this loss is older than the last update, which changed the weights that its "
        "backward needs. detach() what one step carries to the next, such as a hidden state, and "
        "compute each loss anew in its own step(): ",
        error.what()));
  }
}

void ForwardBackward::run(const Loss& loss, Reducer& reducer) {
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
