#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <lockstep/amp/flat_kernels.h>
#include <lockstep/collectives/as_error.h>
#include <lockstep/runtime/flat.h>
#include <lockstep/runtime/reducer.h>

namespace lockstep {

std::vector<at::Tensor> allocate_wires(Communicator& communicator,
                                       const std::vector<BucketPlan>& plans) {
  std::vector<at::Tensor> wires;
  wires.reserve(plans.size());
  for (const BucketPlan& plan : plans) {
    wires.push_back(communicator.allocate(plan.numel, plan.wire_dtype));
  }
  return wires;
}

Reducer::Reducer(Communicator communicator, std::vector<ModelTensor> parameters,
                 std::vector<BucketPlan> plans, std::vector<at::Tensor> wires,
                 ReducerOptions options)
    : communicator_(std::move(communicator)),
      parameters_(std::move(parameters)),
      plans_(std::move(plans)),
      options_(options),
      places_(parameters_.size()),
      wires_(std::move(wires)),
      works_(plans_.size()) {
  for (size_t b = 0; b < plans_.size(); ++b) {
    const BucketPlan& plan = plans_[b];
    const at::TensorOptions fp32 = wires_[b].options().dtype(at::kFloat);
    if (options_.accumulators) {
      accumulators_.push_back(at::zeros({plan.numel}, fp32));
    }
    if (options_.error_feedback) {
      residuals_.push_back(at::zeros({2, plan.numel}, fp32));
    }
    for (const Slot& slot : plan.slots) {
      places_[static_cast<size_t>(slot.parameter)] = {b, slot.offset};
    }
  }
  reset();
  hooks_ = std::make_unique<GradientHooks>(parameters_, [this](int index) { on_gradient(index); });
}

void Reducer::reset() {
  synchronising_ = true;
  factor_ = 1.0;
  touched_any_ = false;
  collected_.assign(parameters_.size(), 0);
  ready_.assign(parameters_.size(), 0);
  pending_.clear();
  for (const BucketPlan& plan : plans_) {
    pending_.push_back(static_cast<int64_t>(plan.slots.size()));
  }
  next_bucket_ = 0;
  works_.assign(plans_.size(), Work());
  unused_.clear();
  problem_.reset();
  if (options_.take_gradients) {
    for (const ModelTensor& parameter : parameters_) {
      parameter.tensor.mutable_grad().reset();
    }
  }
}

void Reducer::synchronise(double factor) {
  synchronising_ = true;
  factor_ = factor;
}

void Reducer::on_gradient(int index) {
  touched_any_ = true;
  require_finished(index);
  if (problem_.has_value()) {
    return;
  }
  try {
    const at::Tensor gradient = dense_gradient(index);
    if (options_.take_gradients) {
      take(index, gradient);
    } else if (synchronising_) {
      pack(index, gradient);
    } else {
      collected_[static_cast<size_t>(index)] = 1;
    }
  } catch (const CommunicationError&) {
    throw;
  } catch (...) {
    problem_ = as_error(std::current_exception());
  }
}

void Reducer::require_finished(int index) {
  const auto i = static_cast<size_t>(index);
  if (options_.take_gradients || ready_[i] == 0) {
    return;
  }
  problem_ = Error(c10::str(
      "parameter ", parameters_[i].name,
      " got a gradient twice in one synchronising backward window (marked ready only once), before "
      "finish(): until then gradients are those of this rank alone. In the loop call finish() "
      "after "
      "each backward and before the optimizer's step, or run the earlier backwards of an update "
      "under no_sync(); now call abandon() and zero_grad() on every rank"));
  throw *problem_;
}

at::Tensor Reducer::dense_gradient(int index) {
  const ModelTensor& parameter = parameters_[static_cast<size_t>(index)];
  at::Tensor gradient = parameter.tensor.grad().detach();
  if (gradient.is_sparse()) {
    LOCKSTEP_CHECK(options_.densify_sparse, "parameter ", parameter.name,
                   " has a sparse gradient; set densify_sparse(true) or build the embedding "
                   "without sparse gradients");
    gradient = gradient.to_dense();
    parameter.tensor.mutable_grad() = gradient;
  }
  LOCKSTEP_CHECK(gradient.sizes() == parameter.tensor.sizes(), "the gradient of parameter ",
                 parameter.name, " has sizes ", gradient.sizes(), ", the parameter ",
                 parameter.tensor.sizes());
  if (gradient.strides() != parameter.tensor.strides() && gradient.numel() > 0) {
    at::Tensor same_layout =
        at::empty_strided(parameter.tensor.sizes(), parameter.tensor.strides(), gradient.options());
    same_layout.copy_(gradient);
    return same_layout;
  }
  return gradient;
}

at::Tensor Reducer::slot(const std::vector<at::Tensor>& flats, int index) const {
  const Place& place = places_[static_cast<size_t>(index)];
  const int64_t numel = parameters_[static_cast<size_t>(index)].tensor.numel();
  return flats[place.bucket].narrow(0, place.offset, numel);
}

void Reducer::take(int index, const at::Tensor& gradient) {
  const auto i = static_cast<size_t>(index);
  if (!synchronising_ || collected_[i] != 0) {
    accumulate(index, gradient);
    if (synchronising_) {
      pack_collected(index);
    }
  } else {
    pack(index, gradient);
  }
  parameters_[i].tensor.mutable_grad().reset();
}

void Reducer::accumulate(int index, const at::Tensor& gradient) {
  const auto i = static_cast<size_t>(index);
  const at::Tensor sum = slot(accumulators_, index);
  if (collected_[i] != 0) {
    amp::accumulate_flat(sum, gradient);
  } else {
    amp::cast_flat(sum, gradient, 1.0);
  }
  collected_[i] = 1;
}

void Reducer::pack_collected(int index) {
  pack(index, options_.take_gradients ? slot(accumulators_, index) : dense_gradient(index));
}

void Reducer::pack(int index, const at::Tensor& gradient) {
  const auto i = static_cast<size_t>(index);
  LOCKSTEP_CHECK(ready_[i] == 0, "parameter ", parameters_[i].name,
                 " got a gradient twice in one synchronising backward window (marked ready only "
                 "once): call finish() after each backward, or run the earlier ones under "
                 "no_sync()");
  const at::Tensor target = slot(wires_, index);
  const bool in_place = gradient.const_data_ptr() == target.const_data_ptr();
  if (options_.error_feedback) {
    pack_with_feedback(index, gradient);
  } else if (!in_place || factor_ != 1.0) {
    amp::cast_flat(target, gradient, factor_);
  }
  mark_ready(index);
}

/// No gradient: zeros are sent, and what was lost before stays to be fed back.
void Reducer::pack_nothing(int index) {
  if (options_.error_feedback) {
    pack_with_feedback(index, {});
  } else {
    slot(wires_, index).zero_();
  }
  mark_ready(index);
}

void Reducer::pack_with_feedback(int index, const at::Tensor& gradient) {
  const Place& place = places_[static_cast<size_t>(index)];
  const at::Tensor target = slot(wires_, index);
  amp::cast_with_feedback(target, gradient, factor_,
                          residuals_[place.bucket].narrow(1, place.offset, target.numel()),
                          feedback_);
}

void Reducer::mark_ready(int index) {
  ready_[static_cast<size_t>(index)] = 1;
  --pending_[places_[static_cast<size_t>(index)].bucket];
  launch_ready();
}

void Reducer::launch_ready() {
  while (next_bucket_ < plans_.size() && pending_[next_bucket_] == 0) {
    works_[next_bucket_] = communicator_.all_reduce(wires_[next_bucket_], options_.op);
    ++next_bucket_;
  }
  communicator_.progress();
}

void Reducer::launch_rest() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto index = static_cast<int>(i);
    if (ready_[i] != 0) {
      continue;
    }
    if (collected_[i] != 0 && !problem_.has_value()) {
      pack_collected(index);
      continue;
    }
    if (collected_[i] == 0) {
      unused_.push_back(index);
    }
    pack_nothing(index);
  }
}

void Reducer::wait_all() {
  for (Work& work : works_) {
    work.wait();
  }
}

void Reducer::drain() {
  launch_rest();
  wait_all();
}

namespace {

int64_t bytes_of(const std::vector<at::Tensor>& flats) {
  int64_t bytes = 0;
  for (const at::Tensor& flat : flats) {
    bytes += static_cast<int64_t>(flat.nbytes());
  }
  return bytes;
}

}  // namespace

int64_t Reducer::accumulator_bytes() const {
  return bytes_of(accumulators_);
}

int64_t Reducer::residual_bytes() const {
  return bytes_of(residuals_);
}

}  // namespace lockstep
