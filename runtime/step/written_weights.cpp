#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <lockstep/amp/impl/cast_kernels.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/step/impl/replicated_array.h>
#include <lockstep/runtime/step/impl/written_weights.h>
#include <lockstep/runtime/storage/impl/versions.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

namespace lockstep::detail {
namespace {

constexpr uint32_t kExponent = 0x7f80'0000;
constexpr int64_t kPart = int64_t{1} << 16;  // elements whose copies are held at once, in the cache

/// True where a weight is not its rounded master; NaN equals NaN. A `split` master is the weight
/// plus a remainder: it rounds to the weight unless the remainder makes it NaN or inf.
at::Tensor differences(const at::Tensor& master, const at::Tensor& weight, bool split) {
  if (split) {
    return master.isfinite().logical_not_().logical_and_(weight.isfinite());
  }
  const at::Tensor rounded = master.to(weight.scalar_type());
  const at::Tensor both_nan = rounded.isnan().logical_and_(weight.isnan());
  return rounded.ne(weight).logical_and_(both_nan.logical_not());
}

/// Compares bytes in host memory, so that no operator reads for a host that may be late (HostActs).
bool differ(const at::Tensor& master, const at::Tensor& weight, bool split) {
  if (!weight.is_cpu()) {
    return differences(master, weight, split).any().item<bool>();
  }
  if (!split) {
    const at::Tensor rounded = master.to(weight.scalar_type());
    if (std::memcmp(rounded.const_data_ptr(), weight.const_data_ptr(), weight.nbytes()) == 0) {
      return false;
    }
  }
  const at::Tensor found = differences(master, weight, split);
  return std::memchr(found.const_data_ptr(), 1, found.nbytes()) != nullptr;
}

/// For host memory, at its speed: true if each weight of the bucket is its rounded master. May be
/// false for NaN, which has many bit patterns.
bool are_rounded_masters(const Arena::Bucket& bucket) {
  const int64_t numel = bucket.share.numel;
  const auto* weights =
      static_cast<const uint16_t*>(bucket.weights.const_data_ptr()) + bucket.share.begin;
  if (bucket.remainders.defined()) {
    const auto* rests = bucket.remainders.const_data_ptr<int16_t>();
    uint32_t broken = 0;  // finite weights that the remainder makes non-finite
    for (int64_t i = 0; i < numel; ++i) {
      const uint32_t weight = static_cast<uint32_t>(weights[i]) << 16U;
      const uint32_t master = weight + static_cast<uint32_t>(static_cast<int32_t>(rests[i]));
      broken |= ((weight & kExponent) != kExponent ? 1U : 0U) &
                ((master & kExponent) == kExponent ? 1U : 0U);
    }
    return broken == 0;
  }
  const auto* masters = bucket.masters.const_data_ptr<float>();
  std::array<uint16_t, 4096> rounded{};
  for (int64_t begin = 0; begin < numel; begin += static_cast<int64_t>(rounded.size())) {
    const int64_t length = std::min(static_cast<int64_t>(rounded.size()), numel - begin);
    kernels::cast_scaled(rounded.data(), bucket.weights.scalar_type(), masters + begin, at::kFloat,
                         length, 1.0);
    if (std::memcmp(rounded.data(), weights + begin,
                    static_cast<size_t>(length) * sizeof(uint16_t)) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

WrittenWeights::WrittenWeights(const Trainable& trainable, Arena& arena,
                               const std::vector<BucketPlan>& plans, RenormedTables tables,
                               bool takes_shared)
    : trainable_(trainable),
      arena_(arena),
      tables_(std::move(tables)),
      takes_shared_(takes_shared),
      places_(trainable.parameters.size()),
      lent_(std::make_shared<const char>('\0')) {
  for (size_t b = 0; b < plans.size(); ++b) {
    for (const Slot& slot : plans[b].slots) {
      places_[static_cast<size_t>(slot.parameter)] = {b, arena.buckets()[b].share.part_of(slot)};
    }
  }
  for (const ModelTensor& entry : trainable.parameters) {
    versions_.push_back(entry.tensor.unsafeGetTensorImpl()->version_counter());
  }
  forget();
}

void WrittenWeights::forget() {
  seen_.clear();
  frozen_.clear();
  for (size_t i = 0; i < places_.size(); ++i) {
    seen_.push_back(version(i));
  }
  for (const ModelTensor& entry : trainable_.frozen) {
    frozen_.push_back(version_of(entry.tensor));
  }
  wrote_.assign(places_.size(), 0);
}

bool WrittenWeights::has_own_masters(size_t bucket) const {
  const Arena::Bucket& each = arena_.buckets()[bucket];
  return each.remainders.defined() ||
         (each.masters.defined() && each.masters.scalar_type() != each.weights.scalar_type());
}

/// Calls body(weights, masters, begin) for parts of a bucket's own masters, until it returns true.
/// Masters in other memory than the weights are copied. With remainders the masters are a copy, as
/// an update reads them: the bits of the weight plus a remainder. After a write these may be NaN
/// (zero and a negative remainder).
template <typename Body>
bool WrittenWeights::any_part(size_t b, int64_t begin, int64_t numel, const Body& body) const {
  const Arena::Bucket& bucket = arena_.buckets()[b];
  for (const int64_t end = begin + numel; begin < end; begin += kPart) {
    const int64_t length = std::min(kPart, end - begin);
    const at::Tensor weights = bucket.weights.narrow(0, bucket.share.begin + begin, length);
    const at::Tensor masters =
        bucket.remainders.defined()
            ? (weights.view(at::kShort).to(at::kInt).bitwise_left_shift(16) +
               bucket.remainders.narrow(0, begin, length).to(weights.device()))
                  .view(at::kFloat)
            : bucket.masters.narrow(0, begin, length).to(weights.device());
    if (body(weights, masters, begin)) {
      return true;
    }
  }
  return false;
}

void WrittenWeights::take() {
  if (!is_lent()) {
    tables_.merge();
    adopt();
  }
}

void WrittenWeights::adopt() {
  if (!is_lent() && !arena_.shared()) {
    adopt_seen();
  }
}

void WrittenWeights::adopt_seen() {
  for (size_t i = 0; i < places_.size(); ++i) {
    if (const uint32_t now = version(i); now != seen_[i]) {
      adopt(places_[i]);
      seen_[i] = now;
      wrote_[i] = 1;
    }
  }
}

void WrittenWeights::adopt(const Place& place) const {
  if (!has_own_masters(place.bucket)) {
    return;
  }
  const c10::AutoGradMode no_grad(false);
  const Arena::Bucket& bucket = arena_.buckets()[place.bucket];
  const bool split = bucket.remainders.defined();
  any_part(place.bucket, place.part.in_shard, place.part.numel,
           [&](const at::Tensor& weights, const at::Tensor& masters, int64_t begin) {
             if (weights.is_cpu() && !differ(masters, weights, split)) {
               return false;
             }
             const at::Tensor changed = differences(masters, weights, split);
             const auto kept = [&](const at::Tensor& state) {
               return state.narrow(0, begin, weights.numel());
             };
             if (split) {
               kept(bucket.remainders).masked_fill_(changed.to(bucket.remainders.device()), 0);
             } else {
               kept(bucket.masters)
                   .copy_(at::where(changed, weights.to(masters.scalar_type()), masters));
             }
             return false;
           });
}

std::optional<DigestDifference> WrittenWeights::take_shared(const Agreement& agreement) {
  if (!arena_.shared() || !agreement.any(!is_lent() && arena_.written_weight().has_value()) ||
      agreement.any(changed().has_value())) {
    return std::nullopt;
  }
  std::vector<ReplicatedArray> weights;
  for (const Arena::Bucket& bucket : arena_.buckets()) {
    for (const Slot& slot : bucket.slots) {
      weights.push_back({trainable_.parameters[static_cast<size_t>(slot.parameter)].name,
                         bucket.weights.narrow(0, slot.offset, slot.numel)});
    }
  }
  if (auto difference = difference_between_ranks(weights, agreement)) {
    return difference;
  }
  adopt_seen();
  arena_.publish_written();
  return std::nullopt;
}

std::optional<Error> WrittenWeights::changed() const {
  if (const auto name = arena_.changed_weight()) {
    return Error(
        c10::str("weight ", *name,
                 " changed in the memory that the ranks of this node share, and no rank wrote it: "
                 "memory is faulty. Go on from the last snapshot with trainer.resume(folder) on "
                 "every rank"),
        ExitCode::diverged);
  }
  return std::nullopt;
}

std::optional<Error> WrittenWeights::unshared() const {
  if (auto found = changed()) {
    return found;
  }
  const auto name = is_lent() ? std::nullopt : arena_.written_weight();
  if (!name) {
    return std::nullopt;
  }
  return Error(c10::str(
      "weight ", *name,
      " was written by the program, and with share_weights the ranks of a node "
      "have one copy, to which a write does not go: nothing was updated or saved. Write the same "
      "values on every rank and call trainer.adopt_weights() there, or use share_weights(false)"));
}

std::optional<Error> WrittenWeights::hidden() const {
  if (auto found = unshared()) {
    return found;
  }
  for (size_t i = 0; !is_lent() && i < places_.size(); ++i) {
    if (auto found = hidden(i)) {
      return found;
    }
  }
  return std::nullopt;
}

std::optional<Error> WrittenWeights::hidden(size_t parameter) const {
  const Place& place = places_[parameter];
  const bool split = arena_.buckets()[place.bucket].remainders.defined();
  std::optional<Error> found;
  if (!has_own_masters(place.bucket)) {
    return found;
  }
  any_part(
      place.bucket, place.part.in_shard, place.part.numel,
      [&](const at::Tensor& weights, const at::Tensor& masters, int64_t) {
        if (!differ(masters, weights, split)) {
          return false;
        }
        const at::Tensor first = differences(masters, weights, split).nonzero()[0];
        found = Error(c10::str(
            "weight ", trainable_.parameters[parameter].name, " has an element that is ",
            weights.index_select(0, first).item<double>(), " in the model and ",
            masters.index_select(0, first).item<double>(),
            " in its fp32 master, and LibTorch saw no write: the next update would undo it. Write "
            "through the parameter itself under torch::NoGradGuard, not through data() or a "
            "pointer, or call trainer.adopt_weights() on every rank after the write. If the "
            "program did not write, memory is faulty: go on from the last snapshot with "
            "trainer.resume(folder) on every rank"));
        return true;
      });
  return found;
}

std::optional<Error> WrittenWeights::hidden_on_host() const {
  if (auto found = unshared()) {
    return found;
  }
  const std::vector<Arena::Bucket>& buckets = arena_.buckets();
  for (size_t b = 0; !is_lent() && b < buckets.size(); ++b) {
    if (has_own_masters(b) && buckets[b].weights.is_cpu() && !are_rounded_masters(buckets[b])) {
      if (auto found = hidden()) {
        return found;
      }
    }
  }
  return std::nullopt;
}

void WrittenWeights::require_unwritten() const {
  for (size_t i = 0; i < places_.size(); ++i) {
    LOCKSTEP_CHECK(version(i) == seen_[i] || !has_own_masters(places_[i].bucket),
                   "the closure writes into weight ", trainable_.parameters[i].name,
                   ", which its master cannot follow in a captured graph");
  }
}

std::vector<std::string> WrittenWeights::names() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < places_.size(); ++i) {
    if (wrote_[i] != 0 || version(i) != seen_[i]) {
      names.push_back(trainable_.parameters[i].name);
    }
  }
  for (size_t i = 0; i < frozen_.size(); ++i) {
    if (version_of(trainable_.frozen[i].tensor) != frozen_[i]) {
      names.push_back(trainable_.frozen[i].name);
    }
  }
  return names;
}

}  // namespace lockstep::detail
