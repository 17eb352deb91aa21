#pragma once

#include <string>

#include "predict/network.h"
#include "predict/step_record.h"

namespace lockstep::launcher {

/// What an update of a recorded step is predicted to take on a number of ranks.
struct Forecast {
  int ranks = 1;
  int nodes = 1;
  double seconds = 0.0;     // of an update
  double exposed = 0.0;     // of them, what communication adds
  double efficiency = 1.0;  // time of one rank alone / seconds
  std::string limit;        // "compute", "node", "link bandwidth" or "link latency"

  /// The update with as many micro-batches as `accumulate`, its buckets as recorded.
  static Forecast of(const StepRecord& step, const Network& network, int ranks, int accumulate);
};

/// What to choose on a number of ranks.
struct Advice {
  double bucket_bytes = 0.0;  // of BucketOptions::bucket_bytes: the shortest update
  Forecast with_buckets;      // with these buckets
  int accumulate = 1;         // the fewest micro-batches that wait for at most 5 % of an update; 0:
                              // none up to 1024

  static Advice of(const StepRecord& step, const Network& network, int ranks);
};

}  // namespace lockstep::launcher
