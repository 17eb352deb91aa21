#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/util/StringUtil.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/storage/impl/bucket_plan.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace lockstep {
namespace {

using Key = std::tuple<c10::ScalarType, c10::ScalarType, int, bool>;  // the last: whole parameters

Key key_of(const PlannedParameter& parameter, int shards) {
  return {parameter.weight_dtype, parameter.wire_dtype, parameter.group,
          parameter.whole && shards > 1};
}

/// A full bucket of whole parameters is closed once its share of padding is not larger.
constexpr double kMostPadding = 0.2;

int64_t padded(int64_t numel) {
  return (numel + slot_alignment - 1) / slot_alignment * slot_alignment;
}

int64_t wire_bytes(const PlannedParameter& parameter, int64_t numel) {
  return numel * static_cast<int64_t>(c10::elementSize(parameter.wire_dtype));
}

/// A bucket that is being filled, and the turn in which its last parameter came.
struct OpenBucket {
  Key key;
  BucketPlan plan;
  int64_t last_turn = 0;
  bool whole = false;
  bool closed = false;
};

OpenBucket& open_bucket(std::vector<OpenBucket>& buckets, const Key& key) {
  const auto found = std::find_if(buckets.begin(), buckets.end(), [&](const OpenBucket& bucket) {
    return bucket.key == key && !bucket.closed;
  });
  if (found != buckets.end()) {
    return *found;
  }
  OpenBucket bucket;
  bucket.key = key;
  std::tie(bucket.plan.weight_dtype, bucket.plan.wire_dtype, bucket.plan.group, bucket.whole) = key;
  return buckets.emplace_back(std::move(bucket));
}

/// Places each slot in one of `shards` equal shards. Returns the share of the bucket that is
/// padding.
double divide(BucketPlan& plan, int shards) {
  std::vector<Slot*> largest_first;
  int64_t used = 0;
  for (Slot& slot : plan.slots) {
    largest_first.push_back(&slot);
    used += padded(slot.numel);
  }
  std::stable_sort(largest_first.begin(), largest_first.end(),
                   [](const Slot* a, const Slot* b) { return a->numel > b->numel; });
  std::vector<int64_t> filled(static_cast<size_t>(shards), 0);
  std::vector<std::pair<Slot*, int64_t>> shard_of;
  for (Slot* slot : largest_first) {
    const auto least = std::min_element(filled.begin(), filled.end());
    shard_of.emplace_back(slot, least - filled.begin());
    slot->offset = *least;
    *least += padded(slot->numel);
  }
  const int64_t stride = *std::max_element(filled.begin(), filled.end());
  for (auto& [slot, shard] : shard_of) {
    slot->offset += shard * stride;
  }
  plan.numel = shards * stride;
  return plan.numel == 0 ? 0.0 : 1.0 - static_cast<double>(used) / static_cast<double>(plan.numel);
}

/// Above 1.6 GB of gradients this many buckets hide as much as smaller ones, and each collective
/// costs the host 30 to 60 us and its thread in NCCL: 7e9 bf16 weights would need 540 of 25 MiB.
constexpr int64_t kMostDeviceBuckets = 64;

int64_t default_bucket_bytes(const std::vector<PlannedParameter>& parameters) {
  if (parameters.empty() || parameters[0].device == c10::DeviceType::CPU) {
    return kHostBucketBytes;
  }
  int64_t bytes = 0;
  for (const PlannedParameter& parameter : parameters) {
    bytes += wire_bytes(parameter, parameter.numel);
  }
  return std::max(kDeviceBucketBytes, bytes / kMostDeviceBuckets);
}

}  // namespace

std::vector<BucketPlan> plan_buckets(const std::vector<PlannedParameter>& parameters,
                                     const BucketOptions& options, int shards) {
  LOCKSTEP_CHECK(options.first_bucket_bytes() > 0,
                 "BucketOptions.first_bucket_bytes must be > 0, is ", options.first_bucket_bytes());
  LOCKSTEP_CHECK(options.bucket_bytes() >= 0, "BucketOptions.bucket_bytes must be >= 0, is ",
                 options.bucket_bytes());
  const int64_t bucket_bytes =
      options.bucket_bytes() > 0 ? options.bucket_bytes() : default_bucket_bytes(parameters);
  std::vector<OpenBucket> buckets;
  const auto count = static_cast<int64_t>(parameters.size());
  for (int64_t turn = 0; turn < count; ++turn) {
    const auto index = static_cast<int>(count - 1 - turn);
    const PlannedParameter& parameter = parameters[static_cast<size_t>(index)];
    const auto limit_of = [&](const OpenBucket& bucket) {
      return &bucket == &buckets.front() ? options.first_bucket_bytes() : bucket_bytes;
    };
    OpenBucket* bucket = &open_bucket(buckets, key_of(parameter, shards));
    if (!bucket->whole && wire_bytes(parameter, parameter.numel) >= bucket_bytes &&
        2 * wire_bytes(parameter, bucket->plan.numel) >= limit_of(*bucket)) {
      bucket->closed = true;  // its gradients need not wait for the large one
      bucket = &open_bucket(buckets, key_of(parameter, shards));
    }
    bucket->plan.slots.push_back({index, bucket->plan.numel, parameter.numel});
    bucket->plan.numel += padded(parameter.numel);
    bucket->last_turn = turn;
    const bool is_full = wire_bytes(parameter, bucket->plan.numel) >= limit_of(*bucket);
    bucket->closed = is_full && (!bucket->whole || divide(bucket->plan, shards) <= kMostPadding);
  }
  std::stable_sort(buckets.begin(), buckets.end(), [](const OpenBucket& a, const OpenBucket& b) {
    return a.last_turn < b.last_turn;
  });
  std::vector<BucketPlan> plans;
  plans.reserve(buckets.size());
  for (OpenBucket& bucket : buckets) {
    if (bucket.whole) {
      divide(bucket.plan, shards);
    }
    plans.push_back(std::move(bucket.plan));
  }
  return plans;
}

std::string padding_note(const std::vector<BucketPlan>& plans) {
  constexpr double kMuch = 0.3;
  int64_t used = 0, all = 0;
  for (const BucketPlan& plan : plans) {
    all += plan.numel;
    for (const Slot& slot : plan.slots) {
      used += padded(slot.numel);  // padding for alignment is not due to sharding
    }
  }
  const double padding =
      all == 0 ? 0.0 : 1.0 - static_cast<double>(used) / static_cast<double>(all);
  return padding < kMuch
             ? ""
             : c10::str("; ", static_cast<int>(100 * padding),
                        " % of their elements are padding: a ",
                        "parameter that one rank updates whole makes the shares of all ranks as ",
                        "large, so shard_optimizer may cost more than it saves");
}

}  // namespace lockstep
