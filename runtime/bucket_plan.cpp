#include <c10/core/ScalarTypeToTypeMeta.h>
#include <lockstep/collectives/error.h>
#include <lockstep/runtime/bucket_plan.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace lockstep {
namespace {

using Key = std::tuple<c10::ScalarType, c10::ScalarType, int>;

Key key_of(const PlannedParameter& parameter) {
  return {parameter.weight_dtype, parameter.wire_dtype, parameter.group};
}

int64_t padded(int64_t numel) {
  return (numel + slot_alignment - 1) / slot_alignment * slot_alignment;
}

int64_t wire_bytes(const PlannedParameter& parameter, int64_t numel) {
  return numel * static_cast<int64_t>(c10::elementSize(parameter.wire_dtype));
}

/// A bucket being filled, and the turn of its last parameter.
struct OpenBucket {
  Key key;
  BucketPlan plan;
  int64_t last_turn = 0;
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
  std::tie(bucket.plan.weight_dtype, bucket.plan.wire_dtype, bucket.plan.group) = key;
  return buckets.emplace_back(std::move(bucket));
}

}  // namespace

std::vector<BucketPlan> plan_buckets(const std::vector<PlannedParameter>& parameters,
                                     const BucketOptions& options) {
  LOCKSTEP_CHECK(options.first_bucket_bytes() > 0,
                 "BucketOptions.first_bucket_bytes must be > 0, is ", options.first_bucket_bytes());
  LOCKSTEP_CHECK(options.bucket_bytes() >= 0, "BucketOptions.bucket_bytes must be >= 0, is ",
                 options.bucket_bytes());
  const bool on_host = parameters.empty() || parameters[0].device == c10::DeviceType::CPU;
  const int64_t bucket_bytes = options.bucket_bytes() > 0 ? options.bucket_bytes()
                               : on_host                  ? kHostBucketBytes
                                                          : kDeviceBucketBytes;
  std::vector<OpenBucket> buckets;
  const auto count = static_cast<int64_t>(parameters.size());
  for (int64_t turn = 0; turn < count; ++turn) {
    const auto index = static_cast<int>(count - 1 - turn);
    const PlannedParameter& parameter = parameters[static_cast<size_t>(index)];
    const auto limit_of = [&](const OpenBucket& bucket) {
      return &bucket == &buckets.front() ? options.first_bucket_bytes() : bucket_bytes;
    };
    OpenBucket* bucket = &open_bucket(buckets, key_of(parameter));
    if (wire_bytes(parameter, parameter.numel) >= bucket_bytes &&
        2 * wire_bytes(parameter, bucket->plan.numel) >= limit_of(*bucket)) {
      bucket->closed = true;  // what is in it need not wait for the large gradient
      bucket = &open_bucket(buckets, key_of(parameter));
    }
    bucket->plan.slots.push_back({index, bucket->plan.numel, parameter.numel});
    bucket->plan.numel += padded(parameter.numel);
    bucket->last_turn = turn;
    bucket->closed = wire_bytes(parameter, bucket->plan.numel) >= limit_of(*bucket);
  }
  std::stable_sort(buckets.begin(), buckets.end(), [](const OpenBucket& a, const OpenBucket& b) {
    return a.last_turn < b.last_turn;
  });
  std::vector<BucketPlan> plans;
  plans.reserve(buckets.size());
  for (OpenBucket& bucket : buckets) {
    plans.push_back(std::move(bucket.plan));
  }
  return plans;
}

}  // namespace lockstep
