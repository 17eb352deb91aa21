#include "predict/forecast.h"

#include <algorithm>

namespace lockstep::launcher {
namespace {

constexpr double kFewPercent = 0.05;
constexpr double kFirstBucket = 1 << 20;  // BucketOptions::first_bucket_bytes
constexpr double kMebibyte = 1 << 20;
constexpr int kMostAccumulated = 1024;
// The exchange of every update after its buckets (docs/architecture.md, Votes and consensus).
constexpr double kFlags = 24;
constexpr double kVotes = 128;

std::string limit_of(const Network::Cost& cost) {
  if (cost.node >= cost.latency && cost.node >= cost.transfer) {
    return "node";
  }
  return cost.transfer >= cost.latency ? "link bandwidth" : "link latency";
}

}  // namespace

StepRecord Sharding::of(StepRecord step, int ranks) const {
  step.update /= optimizer ? ranks : 1;
  return step;
}

/// Buckets are reduced in order, each once it is ready. Transfers over the link during backward
/// take processor time from backward.
Forecast Forecast::of(const StepRecord& step, const Network& network, int ranks, int accumulate,
                      const Sharding& sharding) {
  Forecast forecast;
  forecast.ranks = ranks;
  forecast.nodes = network.nodes(ranks);
  Network::Cost cost;
  double free = 0.0;    // start of the next reduction, after the start of the last backward
  double longer = 0.0;  // by which this backward is longer than the recorded one
  for (const StepRecord::Bucket& bucket : step.buckets) {
    const Network::Cost one = sharding.optimizer
                                  ? network.reduce_scatter(bucket.bytes, step.element, ranks)
                                  : network.all_reduce(bucket.bytes, step.element, ranks);
    const double start = std::max(free, bucket.ready + longer);
    const double hidden = std::min(one.total(), std::max(0.0, step.backward + longer - start));
    if (hidden > 0.0) {
      longer += hidden / one.total() * one.processor;
    }
    free = start + one.total();
    cost = cost + one;
  }
  Network::Cost after = network.all_reduce(kFlags, 8, ranks) + network.all_reduce(kVotes, 8, ranks);
  if (sharding.optimizer) {
    const double weights = step.bytes() / step.element * sharding.weight_element;
    after = after + network.all_gather(weights, ranks, sharding.weights);
  }
  forecast.exposed =
      ranks == 1 ? 0.0 : std::max(step.backward + longer, free) - step.backward + after.total();
  const double alone = sharding.of(step, ranks).compute(accumulate);
  forecast.seconds = alone + forecast.exposed;
  forecast.efficiency = alone / forecast.seconds;
  forecast.limit =
      forecast.exposed <= kFewPercent * forecast.seconds ? "compute" : limit_of(cost + after);
  return forecast;
}

Advice Advice::of(const StepRecord& step, const Network& network, int ranks,
                  const Sharding& sharding) {
  Advice advice;
  for (const double mebibytes : {1, 2, 4, 8, 16, 25, 50, 100, 200}) {
    const StepRecord cut =
        step.with_buckets(std::min(kFirstBucket, mebibytes * kMebibyte), mebibytes * kMebibyte);
    const Forecast forecast = Forecast::of(cut, network, ranks, step.accumulate, sharding);
    if (advice.bucket_bytes == 0.0 || forecast.seconds < advice.with_buckets.seconds) {
      advice.bucket_bytes = mebibytes * kMebibyte;
      advice.with_buckets = forecast;
    }
    if (mebibytes * kMebibyte >= step.bytes()) {
      break;
    }
  }
  const double exposed = advice.with_buckets.exposed;
  const StepRecord own = sharding.of(step, ranks);
  advice.accumulate = 0;
  for (int k = 1; k <= kMostAccumulated; ++k) {
    if (exposed <= kFewPercent * (own.compute(k) + exposed)) {
      advice.accumulate = k;
      break;
    }
  }
  return advice;
}

}  // namespace lockstep::launcher
