#pragma once

#include <c10/core/DispatchKeySet.h>

namespace lockstep::amp {

/// The kernels that lockstep adds to operators within amp::Autocast: norms with half weights
/// convert an fp32 input to the weights' dtype, and autocast's casts of weights are shared
/// (weight_casts.h).
///
/// How: they have a dispatch key of their own, that of a device which lockstep does not use, and a
/// thread includes the key in all its dispatches while autocast is on in an amp::Autocast.
/// Operators without such a kernel fall through at no cost. Nothing happens outside amp::Autocast.
constexpr c10::DispatchKey kRegionKey = c10::DispatchKey::AutocastIPU;

/// What comes after kRegionKey in a dispatch.
constexpr c10::DispatchKeySet after_region_key(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kRegionKey);
}

/// Switches these kernels on or off for the life of the object. amp::Autocast has one.
/// Threads: acts on the calling thread only. Ranks: local.
class RegionKernels {
 public:
  explicit RegionKernels(bool enabled);
  ~RegionKernels();
  RegionKernels(const RegionKernels&) = delete;
  RegionKernels& operator=(const RegionKernels&) = delete;

 private:
  bool previous_included_;
  bool previous_excluded_;
};

}  // namespace lockstep::amp
