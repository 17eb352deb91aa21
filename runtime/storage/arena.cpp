#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <lockstep/amp/impl/storage_kernels.h>
#include <lockstep/collectives/impl/device_watch.h>
#include <lockstep/runtime/storage/impl/arena.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <lockstep/runtime/storage/impl/model_memory.h>
#include <lockstep/runtime/storage/impl/replicas.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

at::Tensor own_part(const at::Tensor& flat, const Shard& share) {
  return flat.narrow(0, share.begin, share.numel);
}

/// Joins weights and remainders to masters. Works on the host, as split() does: no step needs them.
at::Tensor joined(const Arena::Bucket& bucket) {
  const at::Tensor masters = at::empty({bucket.share.numel}, at::kFloat);
  const at::Tensor weights = own_part(bucket.weights, bucket.share).cpu();
  const at::Tensor remainders = bucket.remainders.cpu();
  amp::join_masters(masters.mutable_data_ptr<float>(),
                    static_cast<const uint16_t*>(weights.const_data_ptr()),
                    remainders.const_data_ptr<int16_t>(), masters.numel());
  return masters.to(bucket.remainders.device());
}

void split(const at::Tensor& weights, const at::Tensor& remainders, const at::Tensor& masters) {
  const at::Tensor host_masters = masters.cpu();
  const at::Tensor host_weights = weights.cpu();
  const at::Tensor host_remainders = remainders.cpu();
  amp::split_masters(static_cast<uint16_t*>(host_weights.mutable_data_ptr()),
                     host_remainders.mutable_data_ptr<int16_t>(),
                     host_masters.const_data_ptr<float>(), host_masters.numel());
  if (!weights.is_cpu()) {
    weights.copy_(host_weights);
    remainders.copy_(host_remainders);
  }
}

bool has_own_masters(const Arena::Bucket& bucket) {
  return bucket.masters.defined() && !bucket.masters.is_alias_of(bucket.published);
}

/// The array in which this rank keeps its part of a state.
const at::Tensor& own_state(Arena::State state, const Arena::Bucket& bucket) {
  return state == Arena::State::averages ? bucket.average
         : bucket.remainders.defined()   ? bucket.remainders
         : has_own_masters(bucket)       ? bucket.masters
                                         : bucket.weights;
}

/// Buckets in a NodeMemory start at pages of their own.
size_t whole_pages(size_t bytes) {
  constexpr size_t kPage = size_t{1} << 16;  // the largest of the usual processors
  return (bytes + kPage - 1) / kPage * kPage;
}

size_t bucket_bytes(const BucketPlan& plan, int ranks) {
  return whole_pages(static_cast<size_t>(Shard::of(plan.numel, 0, ranks).stride * ranks) *
                     c10::elementSize(plan.weight_dtype));
}

}  // namespace

Arena::Arena(const std::vector<ModelTensor>& parameters, const std::vector<BucketPlan>& plans,
             const Precision& precision, Options options)
    : parameters_(parameters),
      sharers_(std::move(options.sharers)),
      node_(std::move(options.node)),
      offloads_(options.offloads) {
  for (const BucketPlan& plan : plans) {
    add_bucket(parameters, plan, precision, options.averages);
  }
  note_writes();
}

void Arena::add_bucket(const std::vector<ModelTensor>& parameters, const BucketPlan& plan,
                       const Precision& precision, bool averages) {
  const int ranks = sharded() ? sharers_->size() : 1;
  const c10::Device device = parameters.front().tensor.device();
  Bucket bucket;
  bucket.share = Shard::of(plan.numel, sharded() ? sharers_->rank() : 0, ranks);
  const auto on_device = at::TensorOptions().device(device);
  const int64_t padded = bucket.share.stride * ranks;
  if (shared()) {
    bucket.storage = node_->published(node_begin_, padded, plan.weight_dtype);
    bucket.weights = node_->own(node_begin_, plan.numel, plan.weight_dtype);
    node_begin_ += bucket_bytes(plan, ranks);
  } else {
    bucket.storage = at::zeros({padded}, on_device.dtype(plan.weight_dtype));
    bucket.weights = bucket.storage.narrow(0, 0, plan.numel);
  }
  bucket.published = bucket.storage.narrow(0, 0, plan.numel);
  bucket.slots = plan.slots;
  const bool is_master = plan.weight_dtype == at::kFloat || plan.weight_dtype == at::kDouble;
  const at::Tensor exact =
      at::zeros({plan.numel}, on_device.dtype(is_master ? plan.weight_dtype : at::kFloat));
  for (const Slot& slot : plan.slots) {
    const ModelTensor& entry = parameters[static_cast<size_t>(slot.parameter)];
    const at::Tensor values = real_view(flat_alias(entry.tensor, entry.name)).view({-1});
    exact.narrow(0, slot.offset, slot.numel).copy_(values);
    lay_into(bucket.weights, slot.offset, entry.tensor);
  }
  at::Tensor rounded = shared() ? exact.to(plan.weight_dtype) : bucket.weights.copy_(exact);
  const at::Tensor own = own_part(exact, bucket.share);
  if (is_master) {
    bucket.masters = sharded() ? own_part(bucket.published, bucket.share) : bucket.weights;
  } else if (precision.has_masters()) {
    bucket.masters = kept(own);
  } else if (precision.has_remainders()) {
    const at::Tensor remainders = at::zeros({plan.numel}, on_device.dtype(at::kShort));
    split(rounded, remainders, exact);
    bucket.remainders = kept(own_part(remainders, bucket.share));
  }
  publish(bucket, rounded);
  if (averages) {
    bucket.average = kept(own);
  }
  buckets_.push_back(std::move(bucket));
}

at::Tensor Arena::kept(const at::Tensor& state) const {
  return offloads_ ? copy_on_host(state) : state.clone();
}

size_t Arena::node_bytes(const std::vector<BucketPlan>& plans, int ranks) {
  size_t bytes = 0;
  for (const BucketPlan& plan : plans) {
    bytes += bucket_bytes(plan, ranks);
  }
  return bytes;
}

/// This rank's own shard, and its turn of those whose rank is on another node.
std::vector<Shard> Arena::published_parts(int64_t numel) const {
  std::vector<Shard> parts;
  const std::vector<int>& here = node_->ranks();
  for (int rank = 0; rank < sharers_->size(); ++rank) {
    const bool is_here = std::binary_search(here.begin(), here.end(), rank);
    const int writer = is_here ? rank : here[static_cast<size_t>(rank) % here.size()];
    if (writer == sharers_->rank()) {
      parts.push_back(Shard::of(numel, rank, sharers_->size()));
    }
  }
  return parts;
}

/// Writes the weights, which all ranks have in `values`.
void Arena::publish(const Bucket& bucket, const at::Tensor& values) const {
  if (!shared()) {
    if (!values.is_same(bucket.weights)) {
      bucket.weights.copy_(values);
    }
    return;
  }
  for (const Shard& part : published_parts(values.numel())) {
    own_part(bucket.published, part).copy_(own_part(values, part));
  }
}

std::optional<std::string> Arena::written_weight() const {
  const auto byte = shared() ? node_->find_written() : std::nullopt;
  if (!byte) {
    return std::nullopt;
  }
  size_t begin = 0;            // of the bucket
  size_t nearest = 0;          // the last byte up to this one at which a slot starts
  const Slot* slot = nullptr;  // that slot
  for (const Bucket& bucket : buckets_) {
    for (const Slot& each : bucket.slots) {
      const size_t at = begin + static_cast<size_t>(each.offset) * bucket.weights.element_size();
      if (at <= *byte && (slot == nullptr || at > nearest)) {
        nearest = at;
        slot = &each;
      }
    }
    begin += whole_pages(bucket.storage.nbytes());
  }
  return parameters_[static_cast<size_t>(slot->parameter)].name;
}

/// The digest of this rank's part of each weight, and the parameter that it is of.
template <typename Form>
void Arena::each_digest(const Form& form) const {
  for (const Bucket& bucket : buckets_) {
    for (const Slot& slot : bucket.slots) {
      const Shard::Part part = bucket.share.part_of(slot);
      const at::Tensor own = own_part(bucket.published, bucket.share);
      const at::Tensor bytes = own.narrow(0, part.in_shard, part.numel);
      form(slot.parameter, digest_of(bytes.const_data_ptr(), bytes.nbytes()));
    }
  }
}

void Arena::note_digests() const {
  digests_.clear();
  if (shared()) {
    each_digest([&](int, uint64_t digest) { digests_.push_back(digest); });
  }
}

std::optional<std::string> Arena::changed_weight() const {
  std::optional<std::string> found;
  size_t next = 0;
  if (shared()) {
    each_digest([&](int parameter, uint64_t digest) {
      if (digests_[next++] != digest && !found) {
        found = parameters_[static_cast<size_t>(parameter)].name;
      }
    });
  }
  return found;
}

void Arena::publish_written() {
  for (const Bucket& bucket : buckets_) {
    publish(bucket, bucket.weights);
  }
  wait_for_node();
  node_->restore();
  note_digests();
}

void Arena::wait_for_node() const {
  if (shared()) {
    sharers_->barrier().wait();
  }
}

void Arena::take_back(const std::vector<BucketPlan>& plans) const {
  for (size_t b = 0; b < plans.size(); ++b) {
    for (const Slot& slot : plans[b].slots) {
      lay_into(buckets_[b].weights, slot.offset,
               parameters_[static_cast<size_t>(slot.parameter)].tensor);
    }
  }
}

Work Arena::share_weights(size_t b) {
  if (!sharded()) {
    return {};
  }
  if (shared() && node_->ranks().size() == static_cast<size_t>(sharers_->size())) {
    return b + 1 < buckets_.size() ? Work() : sharers_->barrier();
  }
  const Bucket& bucket = buckets_[b];
  const int64_t stride = bucket.share.stride;
  return sharers_->all_gather(bucket.storage,
                              bucket.storage.narrow(0, sharers_->rank() * stride, stride));
}

/// `own`: this rank's share.
at::Tensor Arena::gathered(const at::Tensor& own, const Bucket& bucket) const {
  if (!sharded()) {
    return own;
  }
  Communicator sharers = *sharers_;
  const at::TensorOptions travels = own.options().device(bucket.storage.device());
  const at::Tensor padded = at::zeros({bucket.share.stride}, travels);
  padded.narrow(0, 0, own.numel()).copy_(own);
  const at::Tensor all = at::empty({bucket.storage.numel()}, travels);
  sharers.all_gather(all, padded).wait();
  return all.narrow(0, 0, bucket.weights.numel()).to(own.device());
}

bool Arena::holds(State state, size_t b) const {
  const Bucket& bucket = buckets_[b];
  if (state == State::averages) {
    return !sharded();
  }
  return !bucket.remainders.defined() && (!sharded() || !has_own_masters(bucket));
}

at::Tensor Arena::whole(State state, size_t b) const {
  const Bucket& bucket = buckets_[b];
  if (state == State::averages) {
    return gathered(bucket.average, bucket);
  }
  if (bucket.remainders.defined()) {
    return gathered(joined(bucket), bucket);
  }
  return has_own_masters(bucket) ? gathered(bucket.masters, bucket) : bucket.weights;
}

at::Tensor Arena::outline(State state, size_t b) const {
  const Bucket& bucket = buckets_[b];
  const at::Tensor& own = own_state(state, bucket);
  const at::ScalarType dtype = own.is_same(bucket.remainders) ? at::kFloat : own.scalar_type();
  return at::empty({bucket.weights.numel()}, at::TensorOptions().device(at::kMeta).dtype(dtype));
}

/// What a rank writes into shared weights would be its private copy.
at::Tensor Arena::room(State state, size_t b) const {
  if (holds(state, b) && !(shared() && state == State::masters)) {
    return whole(state, b);
  }
  const at::Tensor outlined = outline(state, b);
  return at::zeros(outlined.sizes(),
                   outlined.options().device(own_state(state, buckets_[b]).device()));
}

at::Tensor Arena::filled_room(size_t b) const {
  const Bucket& bucket = buckets_[b];
  const at::Tensor values = room(State::masters, b);
  if (values.is_same(bucket.masters) || values.is_same(bucket.weights)) {
    return values;
  }
  values.copy_(bucket.weights);
  const at::Tensor own = own_part(values, bucket.share);
  if (bucket.remainders.defined()) {
    own.copy_(joined(bucket));
  } else if (has_own_masters(bucket)) {
    own.copy_(bucket.masters);
  }
  return values;
}

void Arena::take(State state, size_t b, const at::Tensor& values) {
  const Bucket& bucket = buckets_[b];
  if (state == State::averages) {
    bucket.average.copy_(own_part(values, bucket.share));
  } else if (bucket.remainders.defined()) {
    const at::Tensor remainders = at::empty({values.numel()}, bucket.remainders.options());
    const at::Tensor rounded = shared() ? at::empty_like(bucket.weights) : bucket.weights;
    split(rounded, remainders, values);
    bucket.remainders.copy_(own_part(remainders, bucket.share));
    publish(bucket, rounded);
  } else if (has_own_masters(bucket)) {
    bucket.masters.copy_(own_part(values, bucket.share));
    publish(bucket, values);
  } else if (shared()) {
    publish(bucket, values);
  }
}

void Arena::end_taking() {
  if (shared()) {
    node_->restore();
  }
  note_writes();
}

size_t Arena::buckets_with(State state) const {
  return state == State::masters || has_averages() ? buckets_.size() : 0;
}

std::vector<at::Tensor> Arena::whole(State state) const {
  std::vector<at::Tensor> all;
  for (size_t b = 0; b < buckets_with(state); ++b) {
    all.push_back(whole(state, b));
  }
  return all;
}

std::vector<at::Tensor> Arena::room(State state) const {
  std::vector<at::Tensor> all;
  for (size_t b = 0; b < buckets_with(state); ++b) {
    all.push_back(room(state, b));
  }
  return all;
}

void Arena::take_masters(const std::vector<at::Tensor>& whole) {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    take(State::masters, b, whole[b]);
  }
  end_taking();
}

void Arena::take_averages(const std::vector<at::Tensor>& whole) {
  for (size_t b = 0; b < whole.size(); ++b) {
    take(State::averages, b, whole[b]);
  }
}

std::vector<at::Tensor> Arena::own_arrays() const {
  std::vector<at::Tensor> arrays;
  for (const Bucket& bucket : buckets_) {
    if (shared()) {
      for (const Shard& part : published_parts(bucket.published.numel())) {
        arrays.push_back(own_part(bucket.published, part));
      }
    } else {
      arrays.push_back(bucket.storage);
    }
    for (const at::Tensor& state : {bucket.masters, bucket.remainders, bucket.average}) {
      if (state.defined() && !state.is_alias_of(bucket.storage)) {
        arrays.push_back(state);
      }
    }
  }
  return arrays;
}

int64_t Arena::weight_bytes() const {
  int64_t bytes = 0;
  for (const Bucket& bucket : buckets_) {
    bytes += static_cast<int64_t>(bucket.storage.nbytes());
  }
  return shared() ? bytes / static_cast<int64_t>(node_->ranks().size()) : bytes;
}

int64_t Arena::master_bytes() const {
  int64_t bytes = 0;
  for (const Bucket& bucket : buckets_) {
    if (bucket.remainders.defined()) {
      bytes += static_cast<int64_t>(bucket.remainders.nbytes());
    } else if (has_own_masters(bucket)) {
      bytes += static_cast<int64_t>(bucket.masters.nbytes());
    }
  }
  return bytes;
}

int64_t Arena::average_bytes() const {
  int64_t bytes = 0;
  for (const Bucket& bucket : buckets_) {
    bytes += bucket.average.defined() ? static_cast<int64_t>(bucket.average.nbytes()) : 0;
  }
  return bytes;
}

std::vector<at::Tensor> parameter_views(const std::vector<at::Tensor>& flats,
                                        const std::vector<ModelTensor>& parameters,
                                        const std::vector<BucketPlan>& plans) {
  std::vector<at::Tensor> views(parameters.size());
  for (size_t b = 0; b < plans.size(); ++b) {
    for (const Slot& slot : plans[b].slots) {
      const auto index = static_cast<size_t>(slot.parameter);
      views[index] = shaped_view(flats[b], slot.offset, parameters[index].tensor).detach();
    }
  }
  return views;
}

}  // namespace lockstep::detail
