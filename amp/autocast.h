#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <lockstep/amp/region_kernels.h>
#include <lockstep/amp/weight_casts.h>

namespace lockstep::amp {

/// Autocast for the life of the object: torch.autocast in C++.
///
/// Nests, and restores what was set before, also when an exception passes. A region may hold one
/// forward or a whole loop over updates: each forward sees the weights of its time, whoever changed
/// them. A weight is cast once for each graph that uses it, also in layers that transpose it: see
/// SharedWeightCasts. Only a write that LibTorch does not count, through data() or a pointer, needs
/// clear_cache(), and only where results that were computed before it are still held and no
/// backward has run through them.
/// Parameters marked by compute_in_fp32() (Precision::keep_fp32) compute in fp32 all the same.
/// Norms with half weights convert an fp32 input to the weights' dtype.
/// Threads: acts on the calling thread only. Ranks: local.
class Autocast {
 public:
  Autocast(c10::DeviceType device, c10::ScalarType dtype, bool enabled = true);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  /// Forgets the casts of weights on this thread.
  static void clear_cache();

 private:
  c10::DeviceType device_;
  bool previous_enabled_;
  bool previous_kept_;
  c10::ScalarType previous_dtype_;
  RegionKernels kernels_;
  SharedWeightCasts weight_casts_;
};

}  // namespace lockstep::amp
