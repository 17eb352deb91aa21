#pragma once

#include <string>

#include "predict/network.h"
#include "predict/step_record.h"

namespace lockstep::launcher {

/// What the ranks share out (TrainerOptions).
struct Sharding {
  bool optimizer = false;     // shard_optimizer
  bool weights = false;       // share_weights beside it
  double weight_element = 4;  // bytes of an element of the weights

  /// The recorded step, of whose update each rank makes its shard.
  StepRecord of(StepRecord step, int ranks) const;
};

/// The predicted time of an update of a recorded step on a number of ranks.
struct Forecast {
  int ranks = 1;
  int nodes = 1;
  double seconds = 0.0;     // of an update
  double exposed = 0.0;     // of which communication adds this
  double efficiency = 1.0;  // time of one rank alone / seconds
  std::string limit;        // "compute", "node", "link bandwidth" or "link latency"

  /// Predicts an update of `accumulate` micro-batches with the recorded buckets.
  static Forecast of(const StepRecord& step, const Network& network, int ranks, int accumulate,
                     const Sharding& sharding = {});
};

/// Recommended options for a number of ranks.
struct Advice {
  double bucket_bytes = 0.0;  // BucketOptions::bucket_bytes for the shortest update
  Forecast with_buckets;      // the forecast with bucket_bytes
  int accumulate = 1;         // the fewest micro-batches with at most 5 % of exposed time; 0:
                              // none up to 1024

  static Advice of(const StepRecord& step, const Network& network, int ranks,
                   const Sharding& sharding = {});
};

}  // namespace lockstep::launcher
