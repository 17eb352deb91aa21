#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Stream.h>
#include <c10/util/typeid.h>

#include <optional>
#include <vector>

namespace lockstep::activation {

/// The thread-local state that recompute must share with forward, whichever thread backward runs
/// on: autocast of each device type, the default dtype, and the current CUDA device with its
/// stream.
class ExecutionState {
 public:
  static ExecutionState current();
  bool operator==(const ExecutionState& other) const;

 private:
  friend class ExecutionGuard;
  struct Autocast {
    c10::DeviceType device;
    bool enabled;
    bool included;  // its dispatch key is included for every operator; see amp::RegionKernels
    c10::ScalarType dtype;
    bool operator==(const Autocast& other) const {
      return device == other.device && enabled == other.enabled && included == other.included &&
             dtype == other.dtype;
    }
  };
  std::vector<Autocast> autocast_;
  caffe2::TypeMeta default_dtype_;
  std::optional<c10::Stream> stream_;
};

/// Applies `state` to this thread in the lifetime of the object, with grad mode on and inference
/// mode off. The autocast weight cache is neither read nor written, since its entries belong to
/// another graph. Work on the state's stream waits for the stream that was current before; at the
/// end, that stream waits for the state's stream.
class ExecutionGuard {
 public:
  [[nodiscard]] explicit ExecutionGuard(const ExecutionState& state);
  ~ExecutionGuard();
  ExecutionGuard(const ExecutionGuard&) = delete;
  ExecutionGuard& operator=(const ExecutionGuard&) = delete;

 private:
  void enter(const ExecutionState& state);

  ExecutionState outer_;
  bool outer_grad_mode_;
  bool outer_cache_enabled_;
};

}  // namespace lockstep::activation
