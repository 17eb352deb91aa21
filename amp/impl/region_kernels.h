#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/core/DispatchKeySet.h>

namespace lockstep::amp {

/// The dispatch key of the kernels that lockstep adds to operators inside amp::Autocast. These
/// kernels convert an fp32 input of a norm with half weights to the dtype of the weights, give one
/// dtype to the operands of operators that refuse several (dot, index_put, scatter, lerp, ...), and
/// share autocast's casts of weights (weight_casts.h).
///
/// It is the key of a device that lockstep does not use. A thread includes the key in all its
/// dispatches while an amp::Autocast has autocast enabled. Operators without such a kernel fall
/// through at no cost. Outside amp::Autocast the key is not included and nothing changes.
constexpr c10::DispatchKey kRegionKey = c10::DispatchKey::AutocastIPU;

/// The keys that follow kRegionKey in a dispatch.
constexpr c10::DispatchKeySet after_region_key(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kRegionKey);
}

/// Enables or disables these kernels for the life of the object; the destructor restores the
/// previous setting. A member of amp::Autocast.
/// Threads: acts on the calling thread only. Ranks: local.
class RegionKernels {
 public:
  [[nodiscard]] explicit RegionKernels(bool enabled);
  ~RegionKernels();
  RegionKernels(const RegionKernels&) = delete;
  RegionKernels& operator=(const RegionKernels&) = delete;

 private:
  bool previous_included_;
  bool previous_excluded_;
};

}  // namespace lockstep::amp
