#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/communicator.h>

#include <functional>

#include "doctor/finding.h"

namespace lockstep::doctor {

/// The result of all-reduces of one size; the same on every rank.
struct AllReduceResult {
  int64_t bytes = 0;
  int ranks = 1;
  double seconds = 0.0;        // the fastest repetition, on the slowest rank
  std::vector<int> differing;  // ranks whose bits differ from rank 0's
  double error = 0.0;          // largest error against fp64, relative to the sum of magnitudes
};

/// All-reduces `bytes` of fp32 on `device` in memory of the communicator. `fault` may change this
/// rank's result, for tests. Collective.
AllReduceResult all_reduce(const Communicator& world, const Communicator& control,
                           c10::Device device, int64_t bytes,
                           const std::function<void(at::Tensor&)>& fault = {});
Finding judge_all_reduce(const AllReduceResult& result);

/// Measures how long a new communicator takes. Collective.
Finding check_start_up(const Communicator& world, double runtime_seconds);

}  // namespace lockstep::doctor
