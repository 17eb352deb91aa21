#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <lockstep/amp/weight_casts.h>

namespace lockstep::amp {

/// Autocast for the life of the object: torch.autocast in C++.
///
/// Nests, and restores what was set before, also when an exception passes. Leaving the outermost
/// region clears autocast's weight cache; clear_cache() does so within a region after weights
/// changed (LibTorch checks no version: without it the old weights stay in use).
/// A weight is cast once for each region, also in layers that transpose it: see weight_casts.h.
/// Parameters marked by compute_in_fp32() (Precision::keep_fp32) compute in fp32 all the same.
/// Threads: acts on the calling thread only. Ranks: local.
class Autocast {
 public:
  Autocast(c10::DeviceType device, c10::ScalarType dtype, bool enabled = true);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  static void clear_cache();

 private:
  c10::DeviceType device_;
  bool previous_enabled_;
  bool previous_kept_;
  c10::ScalarType previous_dtype_;
  CachedTransposes cached_transposes_;
};

}  // namespace lockstep::amp
