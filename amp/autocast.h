#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/amp/impl/region_kernels.h>
#include <lockstep/amp/impl/weight_casts.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

namespace lockstep::amp {

/// Enables autocast for the life of the object: torch.autocast in C++.
///
/// Regions nest. The destructor restores the previous settings, also when an exception passes. A
/// region may hold one forward or a whole training loop: each forward uses the current weights, no
/// matter who changed them. Each graph casts a weight once, also in layers that transpose it: see
/// SharedWeightCasts. clear_cache() is needed only after a write that LibTorch does not count
/// (through data() or a pointer), and only while results computed before the write are still held
/// and no backward has run through them.
/// Parameters marked by compute_in_fp32() (Precision::keep_fp32) still compute in fp32. Norms with
/// half weights convert an fp32 input to the dtype of the weights.
/// Threads: acts on the calling thread only. Ranks: local.
class [[nodiscard]] Autocast {
 public:
  [[nodiscard]] Autocast(c10::DeviceType device, c10::ScalarType dtype, bool enabled = true);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  /// Drops this thread's casts of weights.
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
