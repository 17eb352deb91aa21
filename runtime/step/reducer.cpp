#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ScopeExit.h>
#include <lockstep/amp/impl/flat_kernels.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/activity.h>
#include <lockstep/collectives/impl/as_error.h>
#include <lockstep/collectives/impl/backoff.h>
#include <lockstep/collectives/impl/graph_capture.h>
#include <lockstep/collectives/impl/plain_tensor.h>
#include <lockstep/runtime/step/impl/reducer.h>
#include <lockstep/runtime/step/impl/span.h>
#include <lockstep/runtime/storage/impl/flat.h>

#include <algorithm>
#include <utility>

namespace lockstep::detail {

namespace {

constexpr const char* kTwiceInABackward =
    " got two gradients in one backward: something in the loss's graph runs a backward of its own "
    "while the step's backward runs. Let that compute its gradients with torch::autograd::grad() "
    "and return them";
constexpr const char* kTwiceBeforeFinish =
    " got a gradient twice before finish(): two backwards reached it, and the first is being sent "
    "(marked ready only once). If both are of this model's loss, call finish() after each "
    "backward, or run the earlier ones under no_sync(). If the second is of another network's loss "
    "that runs through this model, run it under no_sync() and drop what it leaves here with "
    "zero_grad(), or set requires_grad_(false) on this model's parameters for that time";
constexpr int kImpatientWindows = 100;

/// Where `device` is in its current stream.
c10::Event event_of(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  c10::Event event(device.type());
  event.record(guard.getStream(device));
  return event;
}

/// Slots have gaps between them, which are measured, too.
std::vector<at::Tensor> gaps_of(const at::Tensor& wire, std::vector<Slot> slots) {
  std::sort(slots.begin(), slots.end(),
            [](const Slot& a, const Slot& b) { return a.offset < b.offset; });
  std::vector<at::Tensor> gaps;
  int64_t end = 0;
  const auto add = [&](int64_t begin) {
    if (begin > end) {
      gaps.push_back(wire.narrow(0, end, begin - end));
    }
  };
  for (const Slot& slot : slots) {
    add(slot.offset);
    end = slot.offset + slot.numel;
  }
  add(wire.numel());
  return gaps;
}

}  // namespace

Reducer::Reducer(Communicator communicator, std::vector<ModelTensor> parameters,
                 std::vector<BucketPlan> plans, Wires wires, ReducerOptions options,
                 std::vector<at::Tensor> leaf_sums)
    : communicator_(std::move(communicator)), options_(options) {
  lay_out(std::move(parameters), std::move(plans), std::move(wires), std::move(leaf_sums));
}

void Reducer::lay_out(std::vector<ModelTensor> parameters, std::vector<BucketPlan> plans,
                      Wires wires, std::vector<at::Tensor> leaf_sums) {
  hooks_.reset();
  device_waits_ = !wires.buckets.empty() && !wires.buckets.front().is_cpu() &&
                  graph_capture_refusal(communicator_).empty();
  vain_before_ = false;
  impatient_windows_ = 0;
  parameters_ = std::move(parameters);
  plans_ = std::move(plans);
  ring_ = std::move(wires);
  wires_.clear();
  gaps_.clear();
  places_.assign(parameters_.size(), {});
  accumulators_.clear();
  if (options_.leaves > 0) {
    leaf_sums_.emplace(std::move(leaf_sums), plans_, options_.leaves);
  }
  for (size_t b = 0; b < plans_.size(); ++b) {
    const BucketPlan& plan = plans_[b];
    wires_.push_back(ring_.buckets[b].narrow(0, 0, plan.numel));
    if (ring_.ring != 0) {
      gaps_.push_back(gaps_of(ring_.buckets[b], plan.slots));
    }
    const at::TensorOptions fp32 = wires_[b].options().dtype(at::kFloat);
    if (options_.accumulators) {
      const bool wide = plan.weight_dtype == at::kDouble;
      accumulators_.push_back(at::zeros({plan.numel}, wide ? fp32.dtype(at::kDouble) : fp32));
    }
    for (size_t s = 0; s < plan.slots.size(); ++s) {
      const Slot& slot = plan.slots[s];
      places_[static_cast<size_t>(slot.parameter)] = {b, slot.offset, slot.numel, s};
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
  wires_taken_ = 0;
  shards_kept_ = 0;
  note_patience();
  waiting_.assign(plans_.size(), {});
  works_.assign(plans_.size(), Work());
  unused_.clear();
  problem_.reset();
  if (options_.take_gradients) {
    drop_gradients();
  }
}

void Reducer::drop_gradients() {
  for (const ModelTensor& parameter : parameters_) {
    parameter.tensor.mutable_grad().reset();
  }
}

void Reducer::take_from(const std::function<void()>& backward, const Form& form, bool last) {
  drop_gradients();
  taking_ = true;
  last_backward_ = last;
  form_ = form ? &form : nullptr;
  const auto stop = c10::make_scope_exit([this] {
    taking_ = false;
    form_ = nullptr;
  });
  backward();
}

void Reducer::synchronise(double factor) {
  synchronising_ = true;
  const bool packs_shares = options_.take_gradients && options_.op == ReduceOp::sum();
  factor_ = packs_shares && !leaf_sums_ ? factor / communicator_.size() : factor;
}

void Reducer::on_gradient(int index) {
  if (options_.take_gradients && !taking_) {
    return;
  }
  touched_any_ = true;
  require_finished(index);
  if (problem_.has_value()) {
    return;
  }
  try {
    const at::Tensor gradient = dense_gradient(index);
    if (options_.take_gradients) {
      take(index, form_ != nullptr ? (*form_)(gradient) : gradient);
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
  problem_ = Error(c10::str("parameter ", parameters_[i].name, kTwiceBeforeFinish,
                            "; now call abandon() and zero_grad() on every rank"));
  throw *problem_;
}

at::Tensor Reducer::dense_gradient(int index) {
  const ModelTensor& parameter = parameters_[static_cast<size_t>(index)];
  at::Tensor gradient = parameter.tensor.grad().detach();
  if (is_lazy(gradient)) {
    parameter.tensor.mutable_grad() = gradient = applied(gradient);
  }
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
  if (!same_memory_order(gradient, parameter.tensor) && gradient.numel() > 0) {
    gradient =
        at::empty_strided(parameter.tensor.sizes(), parameter.tensor.strides(), gradient.options())
            .copy_(gradient);
  }
  return real_view(gradient);
}

at::Tensor Reducer::slot(const std::vector<at::Tensor>& flats, int index) const {
  const Place& place = places_[static_cast<size_t>(index)];
  return flats[place.bucket].narrow(0, place.offset, place.numel);
}

void Reducer::take(int index, const at::Tensor& gradient) {
  const auto i = static_cast<size_t>(index);
  const bool packs = synchronising_ && last_backward_;
  if (leaf_sums_) {
    take_leaf(index, gradient, packs);
  } else if (!packs || collected_[i] != 0) {
    accumulate(index, gradient);
    if (packs) {
      pack_collected(index);
    }
  } else {
    pack(index, gradient);
  }
  parameters_[i].tensor.mutable_grad().reset();
}

void Reducer::take_leaf(int index, const at::Tensor& gradient, bool packs) {
  const auto i = static_cast<size_t>(index);
  LOCKSTEP_CHECK(ready_[i] == 0, "parameter ", parameters_[i].name, kTwiceInABackward);
  leaf_sums_->add(places_[i].bucket, places_[i].slot, gradient, /*first=*/collected_[i] == 0);
  collected_[i] = 1;
  if (packs) {
    mark_ready(index);
  }
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
  if (leaf_sums_) {
    mark_ready(index);
    return;
  }
  pack(index, options_.take_gradients ? slot(accumulators_, index) : dense_gradient(index));
}

void Reducer::pack(int index, const at::Tensor& gradient) {
  const auto i = static_cast<size_t>(index);
  LOCKSTEP_CHECK(ready_[i] == 0, "parameter ", parameters_[i].name, kTwiceInABackward);
  const at::Tensor target = slot(wires_, index);
  const bool in_place = gradient.const_data_ptr() == target.const_data_ptr();
  const bool later = !target.is_cpu() || !take_wire(places_[i].bucket, /*waits=*/false);
  if ((!in_place || factor_ != 1.0) && later) {
    Waiting& waiting = waiting_[places_[i].bucket];
    waiting.slots.push_back(target);
    waiting.gradients.push_back(gradient);
  } else if (!in_place || factor_ != 1.0) {
    amp::cast_flat(target, gradient, factor_);  // while the gradient is in the cache
  }
  mark_ready(index);
}

void Reducer::pack_waiting(size_t bucket) {
  const Waiting waiting = std::exchange(waiting_[bucket], {});
  for (const at::Tensor& slot : waiting.zeros) {
    slot.zero_();
  }
  amp::cast_all_flat(waiting.slots, waiting.gradients, factor_);
}

/// For a parameter without gradient: sends zeros.
void Reducer::pack_nothing(int index) {
  const auto i = static_cast<size_t>(index);
  if (leaf_sums_) {
    leaf_sums_->clear(places_[i].bucket, places_[i].slot);
  } else {
    waiting_[places_[i].bucket].zeros.push_back(slot(wires_, index));
  }
  mark_ready(index);
}

void Reducer::mark_ready(int index) {
  const size_t bucket = places_[static_cast<size_t>(index)].bucket;
  if (pending_[bucket] == 1 && take_wire(bucket, /*waits=*/false)) {
    pack_waiting(bucket);  // may throw: then launch_rest() calls this again
  }
  ready_[static_cast<size_t>(index)] = 1;
  --pending_[bucket];
  launch_ready();
}

void Reducer::launch_ready(bool waits) {
  while (next_bucket_ < plans_.size() && pending_[next_bucket_] == 0 &&
         take_wire(next_bucket_, waits)) {
    pack_waiting(next_bucket_);  // what had no wire when it came
    const at::Tensor& wire = wires_[next_bucket_];
    const StepSpan span(kLaunchBucket, next_bucket_, wire.numel(), wire.element_size());
    const CallLabel label("bucket", static_cast<int64_t>(next_bucket_));
    works_[next_bucket_] = reduced(next_bucket_);
    ++next_bucket_;
  }
  communicator_.progress();
}

bool Reducer::take_wire(size_t bucket, bool waits) {
  while (ring_.ring != 0 && wires_taken_ <= bucket) {
    if (wires_taken_ >= ring_.ring) {
      const size_t before = wires_taken_ - ring_.ring;
      if (before >= next_bucket_ || !(waits || device_waits_ || comes_soon(works_[before]))) {
        return false;
      }
      keep_shards(before);
    }
    clear_gaps(wires_taken_);
    ++wires_taken_;
  }
  return true;
}

bool Reducer::comes_soon(Work& work) {
  const c10::Device device = ring_.buckets.front().device();
  const bool is_patient = !device.is_cpu() && !waited_in_vain_ && impatient_windows_ == 0;
  if (!is_patient) {
    return work.test();
  }
  const c10::Event own_part = event_of(device);
  bool is_done = false;
  Backoff backoff(/*crowded=*/true);
  while (!work.test()) {
    if (!is_done && own_part.query()) {
      is_done = true;
      backoff = Backoff(/*crowded=*/true);
    }
    if (is_done && backoff.seconds() > kPatience) {
      waited_in_vain_ = true;
      return false;
    }
    backoff.pause();
  }
  return true;
}

void Reducer::note_patience() {
  if (waited_in_vain_) {
    impatient_windows_ = vain_before_ ? kImpatientWindows : 0;
    vain_before_ = true;
  } else if (impatient_windows_ > 0) {
    --impatient_windows_;
  } else {
    vain_before_ = false;
  }
  waited_in_vain_ = false;
}

/// Another bucket has written there.
void Reducer::clear_gaps(size_t bucket) {
  if (!gaps_[bucket].empty()) {
    at::_foreach_zero_(gaps_[bucket]);
  }
}

/// With a ring: waits for the buckets up to `last`, and copies this rank's shards from their wires.
void Reducer::keep_shards(size_t last) {
  for (; ring_.ring != 0 && shards_kept_ <= last; ++shards_kept_) {
    works_[shards_kept_].wait();
    const Shard own = own_shard(shards_kept_);
    ring_.shards[shards_kept_].copy_(wires_[shards_kept_].narrow(0, own.begin, own.numel));
  }
}

Work Reducer::reduced(size_t bucket) const {
  if (leaf_sums_) {
    return communicator_.all_reduce(leaf_sums_->of(bucket), ReduceOp::sum());
  }
  if (!options_.scatter) {
    return communicator_.all_reduce(wires_[bucket], options_.op);
  }
  const int64_t stride = own_shard(bucket).stride;
  const at::Tensor& all = ring_.buckets[bucket];
  return communicator_.reduce_scatter(all.narrow(0, communicator_.rank() * stride, stride), all,
                                      options_.op);
}

Shard Reducer::own_shard(size_t bucket) const {
  return options_.scatter
             ? Shard::of(plans_[bucket].numel, communicator_.rank(), communicator_.size())
             : Shard::of(plans_[bucket].numel, 0, 1);
}

at::Tensor Reducer::gradient(size_t bucket, const Shard& part) const {
  return ring_.ring != 0 ? ring_.shards[bucket] : wires_[bucket].narrow(0, part.begin, part.numel);
}

amp::MeasuredParts Reducer::measured_parts(size_t bucket) const {
  if (leaf_sums_) {
    return {};  // the bits must not depend on the number of ranks
  }
  const int ranks = communicator_.size();
  return {Shard::of(plans_[bucket].numel, 0, ranks).stride, ranks};
}

/// True if earlier backwards of this window left a gradient, unless zero_grad() dropped it.
bool Reducer::left_something(int index) const {
  const auto i = static_cast<size_t>(index);
  return collected_[i] != 0 && (options_.take_gradients || parameters_[i].tensor.grad().defined());
}

void Reducer::launch_rest() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto index = static_cast<int>(i);
    if (ready_[i] != 0) {
      continue;
    }
    if (left_something(index) && !problem_.has_value()) {
      pack_collected(index);
      continue;
    }
    if (!left_something(index)) {
      unused_.push_back(index);
    }
    pack_nothing(index);
  }
  launch_ready(/*waits=*/true);
}

void Reducer::wait(size_t bucket) {
  works_[bucket].wait();
  keep_shards(bucket);
  if (leaf_sums_) {
    leaf_sums_->read(bucket, wires_[bucket], factor_);
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

int64_t Reducer::accumulator_bytes() const {
  int64_t bytes = leaf_sums_ ? leaf_sums_->bytes() : 0;
  for (const at::Tensor& flat : accumulators_) {
    bytes += static_cast<int64_t>(flat.nbytes());
  }
  return bytes;
}

}  // namespace lockstep::detail
