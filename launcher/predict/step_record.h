#pragma once

#include <string>
#include <vector>

namespace lockstep::launcher {

/// What one recorded update took, without its communication. Times in seconds.
struct StepRecord {
  struct Bucket {
    double ready = 0.0;  // after the start of the last backward
    double bytes = 0.0;
  };
  double forward = 0.0;   // of one micro-batch
  double backward = 0.0;  // of one micro-batch
  double update = 0.0;
  int accumulate = 1;
  int element = 4;              // bytes of a gradient's element on the wire
  std::vector<Bucket> buckets;  // in the order in which they were ready

  /// Reads the file that StepTrace::write() wrote, and takes the update whose compute is the median
  /// of the rank that computes longest; or an object with the same figures (docs/predict.md).
  /// Throws std::runtime_error that names the file and what is missing.
  static StepRecord read(const std::string& path);

  /// Forward, backward and update of one update, as one rank alone runs it.
  double compute(int micro_batches) const { return micro_batches * (forward + backward) + update; }
  double bytes() const;
  /// The same step, its gradients cut into buckets of at most these bytes. Between recorded buckets
  /// gradients are taken to come evenly.
  StepRecord with_buckets(double first_bytes, double bytes) const;
};

}  // namespace lockstep::launcher
