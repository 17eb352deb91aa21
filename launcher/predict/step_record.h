#pragma once

#include <string>
#include <vector>

namespace lockstep::launcher {

/// The times of one recorded update, without communication. In seconds.
struct StepRecord {
  struct Bucket {
    double ready = 0.0;  // after the start of the last backward
    double bytes = 0.0;
  };
  double forward = 0.0;   // of one micro-batch
  double backward = 0.0;  // of one micro-batch
  double update = 0.0;
  int accumulate = 1;
  int element = 4;              // bytes of an element of the wire dtype
  std::vector<Bucket> buckets;  // in the order in which they were ready

  /// Reads a file of StepTrace::write(), and takes the update with the median compute time of the
  /// slowest rank; or an object with the same values (docs/predict.md). Throws std::runtime_error
  /// that names the file and what is missing.
  static StepRecord read(const std::string& path);

  /// The time of forward, backward and update on a single rank.
  double compute(int micro_batches) const { return micro_batches * (forward + backward) + update; }
  double bytes() const;
  /// The same step with buckets of at most these bytes. Assumes that gradients between two recorded
  /// buckets become ready at a constant rate.
  StepRecord with_buckets(double first_bytes, double bytes) const;
};

}  // namespace lockstep::launcher
